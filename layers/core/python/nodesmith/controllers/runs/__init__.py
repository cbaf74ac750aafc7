"""What the runs of all concerns share: snapshots, reports, hints to themselves, work done concurrently."""
