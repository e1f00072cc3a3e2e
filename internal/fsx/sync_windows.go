package fsx

// ignoreUnsupported passes over every error: a folder cannot be synced here.
func ignoreUnsupported(error) error { return nil }
