package policyfile_test

import (
	"fmt"

	"github.com/idemq/idemq/consumer/policyfile"
)

// All mistakes of a file come at once, each with its place and its remedy.
func ExampleParse() {
	_, err := policyfile.Parse("policy.yaml", []byte(`version: 1
handler_timeot: 30s
retry:
  attempts: 5
  backoff: {initial: 5}
`))
	fmt.Println(err)
	p, err := policyfile.Parse("policy.yaml", []byte("version: 1\nretry: {attempts: unlimited}\n"))
	fmt.Println(p.Retry.Attempts, err)
	// Output:
	// policy: policy.yaml: 2 problems
	//   2:1 handler_timeot: unknown field; did you mean handler_timeout?
	//   5:22 retry.backoff.initial: "5" is not a duration; add the unit: 5s or 5ms
	// -1 <nil>
}
