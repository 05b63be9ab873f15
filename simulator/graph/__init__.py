"""Takes recorded agent traffic as ids of prompt blocks, gives requests that wait for one another: a closed loop."""
