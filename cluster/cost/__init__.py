"""What GPUs cost and how much they judge: prices, rates, and the cheapest mix of types. No Ray, no run directory."""
