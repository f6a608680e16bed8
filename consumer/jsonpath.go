package consumer

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
)

var errNoField = errors.New("not there")

// jsonAt returns the raw value at steps: names of objects, indexes of arrays. Errors quote nothing of the body.
func jsonAt(body []byte, steps []string) (json.RawMessage, error) {
	if !json.Valid(body) {
		return nil, errors.New("body is not JSON")
	}
	at := json.RawMessage(bytes.TrimSpace(body))
	for _, step := range steps {
		switch at[0] {
		case '{':
			var fields map[string]json.RawMessage
			if err := json.Unmarshal(at, &fields); err != nil {
				return nil, jsonError(err)
			}
			next, ok := fields[step]
			if !ok {
				return nil, fmt.Errorf("%q: %w", step, errNoField)
			}
			at = bytes.TrimSpace(next)
		case '[':
			var items []json.RawMessage
			if err := json.Unmarshal(at, &items); err != nil {
				return nil, jsonError(err)
			}
			i, err := strconv.ParseUint(step, 10, 31)
			if err != nil || int(i) >= len(items) {
				return nil, fmt.Errorf("%q: %w", step, errNoField)
			}
			at = bytes.TrimSpace(items[i])
		default:
			return nil, fmt.Errorf("%q: %w", step, errNoField)
		}
	}
	return at, nil
}

// jsonID reads a string, or an integer as it is written.
func jsonID(body []byte, steps []string) (string, error) {
	raw, err := jsonAt(body, steps)
	if err != nil {
		return "", err
	}
	switch c := raw[0]; {
	case c == '"':
		var s string
		if err := json.Unmarshal(raw, &s); err != nil {
			return "", jsonError(err)
		}
		return s, nil
	case c == '-' || '0' <= c && c <= '9':
		if bytes.ContainsAny(raw, ".eE") {
			return "", errors.New("a number that is no integer; use a string or an integer")
		}
		return string(raw), nil
	}
	return "", errors.New("neither a string nor an integer")
}
