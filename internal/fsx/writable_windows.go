package fsx

// writable does not ask: there is no cheap way to know. Whoever writes is notified of it.
func writable(string) error { return nil }
