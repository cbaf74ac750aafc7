"""CapacityBuffers: how much room they ask for, where it is, what is bought for it, and what it may cost.

`resolutions` says what each buffer asks for and writes its status, with sizes of `forecast`. `room` places planned pods
and buys for them within the limits of `dollars`. `warmcapacity` keeps stopped instances.
"""
