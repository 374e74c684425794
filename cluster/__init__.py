"""What a cluster needs to run Warpsmith: job submission and manifests."""
