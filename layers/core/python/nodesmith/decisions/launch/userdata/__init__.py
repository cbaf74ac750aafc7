"""User data: what an instance reads when it boots, in the format of its image family.

`al2023` writes it for Amazon Linux 2023 and checks what users write for nodeadm, `bottlerocket` for Bottlerocket, and
`bootstrapscripts` for Amazon Linux 2 and Windows. `starting` has what they all write, and `mime` is a format that some
share.
"""
