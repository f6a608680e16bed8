// Package broadcast wakes all goroutines that wait for a change of something that a mutex guards. sync.Cond would do, if waiting for it
// ended with a context.
package broadcast

// Signal is one kind of change. The zero Signal is ready. It is used with the mutex held that guards what changes: get Wait, look, unlock,
// and then receive.
type Signal struct{ ch chan struct{} }

// Wait is closed by the next Fire.
func (s *Signal) Wait() <-chan struct{} {
	if s.ch == nil {
		s.ch = make(chan struct{})
	}
	return s.ch
}

// Fire wakes all that wait now.
func (s *Signal) Fire() {
	if s.ch != nil {
		close(s.ch)
		s.ch = nil
	}
}
