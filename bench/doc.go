// Package bench measures what idemq costs against the alternatives, on the same services in the same run. `make bench` prints the ratios;
// absolute numbers mean little on a shared machine.
package bench
