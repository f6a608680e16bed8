package rocketmq

import "time"

// SetParkedAtMost shortens how long messages wait here in an outage, for the next Run.
func (c *Consumer) SetParkedAtMost(d time.Duration) { c.parkedAtMost = d }

// Inside is how many deliveries wait or run.
func (c *Consumer) Inside() int {
	c.mu.Lock()
	r := c.running
	c.mu.Unlock()
	if r == nil {
		return 0
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.inside
}
