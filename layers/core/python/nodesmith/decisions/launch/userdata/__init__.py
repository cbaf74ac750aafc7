"""User data: what an instance reads when it boots, in the format of its image family.

`configurations` writes it for Amazon Linux 2023 and Bottlerocket and checks what users write for nodeadm;
`bootstrapscripts` writes it for Amazon Linux 2 and Windows. `starting` has what they all write.
"""
