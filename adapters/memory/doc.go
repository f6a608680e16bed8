// Package memory is a broker in memory and a consumer of it, on the same pipeline as the real brokers: for a first look, and for your
// own tests of handlers and policies. Nothing is stored; everything ends with the process.
//
// It behaves as a broker does that delivers at least once: topics with partitions chosen by key, order in a partition, consumer groups whose
// members share the partitions, rebalances when a member comes or goes, redelivery of what was not acknowledged, retry topics with
// delays, a dead-letter topic. What real brokers do beyond that, it does not: no record ever gets lost or expires, nothing takes time. Inside
// of testing/synctest delays cost nothing.
package memory
