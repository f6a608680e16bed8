// Package readme holds the programs of README.md as examples, and tests that README.md shows just them.
package readme
