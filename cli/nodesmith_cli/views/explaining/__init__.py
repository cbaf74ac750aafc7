"""`nodesmith explain`: why a decision is what it is, and what became of a pod, a node or a NodePool.

`decision`, `pod`, `node` and `stay` return the data, `commands` and `nodecommand` find what is asked about and print
it, and `page` and `decisionpage` make HTML reports of it.
"""
