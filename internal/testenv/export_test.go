package testenv

// Attach makes the services end with this process.
func (l *Local) Attach() { l.attached = true }
