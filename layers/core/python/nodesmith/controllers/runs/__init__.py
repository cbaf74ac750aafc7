"""What the runs of all concerns share: snapshots, reports, hints to themselves, concurrent work."""
