// Package kafka runs consumer.Pipelines on Apache Kafka, on top of segmentio/kafka-go.
//
// What is promised: no message is acknowledged before its pipeline has settled it, or before the broker has acknowledged its copy on a retry or dead-letter
// topic. Messages with the same key run one after the other in the order of their partition (Policy.Order), others beside each other. A
// message may be delivered again, after a crash, a rebalance or a broker's failure: that is what the pipeline's guard is for.
//
// A Consumer is a member of a group. For each generation of the group it fetches its partitions, hands the records to lanes, and
// commits, twice a second and at the end, the offset up to which everything is settled: never more than that, and only as the member of the generation that
// owns the partition. When a generation ends, nothing begins any more, what waits is dropped uncommitted, and what runs has the drain
// timeout to end; meanwhile commits keep the membership alive.
//
// What is not promised: members that use another client kind in the same group end the group's balancing (kafka-go issues 1156 and 1196); a broker
// that sends a negative record count ends the process inside of kafka-go (1438); positions name a topic by its name, as kafka-go
// knows no topic ids, so a topic that was deleted and made anew repeats them.
//
// A broker's floor for Config.Session is group.min.session.timeout.ms, 6 s by default: after a crash, partitions of the crashed member stand still that long.
package kafka
