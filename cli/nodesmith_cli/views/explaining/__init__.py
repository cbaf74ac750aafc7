"""`nodesmith explain`: the reasons for a decision, and the state of a pod, a node or a NodePool.

`decision`, `pod`, `node` and `stay` return the data, `commands` and `nodecommand` find the object and print the data,
and `page` and `decisionpage` make HTML reports of it.
"""
