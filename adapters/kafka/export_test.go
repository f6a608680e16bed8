package kafka

import "time"

// SetGoneFor shortens for how long a topic must be gone before it counts as deleted.
func (c *Consumer) SetGoneFor(d time.Duration) { c.goneFor = d }
