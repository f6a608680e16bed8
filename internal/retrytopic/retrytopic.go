// Package retrytopic names the retry topics of a group, "<group>.retry.<duration>": where a message of the group waits that long for its
// next attempt.
package retrytopic

import (
	"strings"
	"time"
)

// Prefix begins the names of all retry topics of group.
func Prefix(group string) string { return group + ".retry." }

// Name is the retry topic of group for a delay.
func Name(group string, delay time.Duration) string { return Prefix(group) + text(delay) }

// text is d without zero parts: 5m, not 5m0s.
func text(d time.Duration) string {
	s := d.String()
	if strings.HasSuffix(s, "m0s") {
		s = strings.TrimSuffix(s, "0s")
	}
	if strings.HasSuffix(s, "h0m") {
		s = strings.TrimSuffix(s, "0m")
	}
	return strings.ReplaceAll(s, "µ", "u") // not a letter of topic names; ParseDuration reads both
}

// Delay reads the delay from a name. False for a topic that is no retry topic of group. One with the prefix and no duration is none:
// "shop.retry.dlq" has the dead letters of the group "shop.retry".
func Delay(group, topic string) (delay time.Duration, ok bool) {
	rest, ok := strings.CutPrefix(topic, Prefix(group))
	if !ok {
		return 0, false
	}
	d, err := time.ParseDuration(rest)
	if err != nil || d < 0 {
		return 0, false
	}
	return d, true
}
