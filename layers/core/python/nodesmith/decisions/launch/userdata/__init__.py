"""User data: what an instance reads when it boots, in the format of its image family.

`writing` chooses the family. A module for each writes it: `al2023`, `al2`, `bottlerocket` and `windows`. `starting` has
what they all write, `mime`, `kubeletflags` and `powershell` are formats that some share, and `nodeconfigs` checks what
users write for nodeadm.
"""
