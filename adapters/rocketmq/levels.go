package rocketmq

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"
)

// usualLevels is RocketMQ's messageDelayLevel.
const usualLevels = "1s 5s 10s 30s 1m 2m 3m 4m 5m 6m 7m 8m 9m 10m 20m 30m 1h 2h"

// ParseLevels reads a broker's messageDelayLevel, such as "1s 5s 10s 30s 1m": whole numbers of seconds, minutes, hours or days (d).
func ParseLevels(s string) ([]time.Duration, error) {
	var levels []time.Duration
	for _, field := range strings.Fields(s) {
		unit, ok := map[byte]time.Duration{'s': time.Second, 'm': time.Minute, 'h': time.Hour, 'd': 24 * time.Hour}[field[len(field)-1]]
		n, err := strconv.Atoi(field[:len(field)-1])
		if !ok || err != nil || n < 1 {
			return nil, fmt.Errorf("rocketmq: delay level %q: want a number and s, m, h or d, such as 30s", field)
		}
		levels = append(levels, time.Duration(n)*unit)
	}
	if len(levels) == 0 || !slices.IsSorted(levels) {
		return nil, fmt.Errorf("rocketmq: delay levels %q: want at least one, from short to long", s)
	}
	return levels, nil
}

// levelFor is the number, from 1, of the shortest level that is not shorter than d: a message never comes back early, unless d is longer than all
// levels, which gives the longest. It is never 0, which the broker takes for a choice of its own, nor -1, its dead letters.
func levelFor(levels []time.Duration, d time.Duration) int {
	for i, l := range levels {
		if l >= d {
			return i + 1
		}
	}
	return max(len(levels), 1)
}
