// Package rocketmq runs consumer.Pipelines on Apache RocketMQ, on top of rocketmq-client-go.
//
// What is promised: no message is acknowledged before its pipeline has settled it, or before the broker has taken it back for a later delivery, or has its
// dead letter. A message may be delivered again, after a crash, a rebalance or a broker's failure, and RocketMQ does so more often than Kafka: that
// is what the pipeline's guard is for. Failures are counted by the guard, never by the broker.
//
// Concurrent consumption is the default: messages of a queue run beside each other and in no order, whatever the policy's order
// says. A message that failed goes back to the broker, which delivers it again after one of its delay levels, the shortest that is not shorter than
// what the policy asks for. Config.Orderly keeps the order of each queue, and so that of a sharding key: a message that failed is tried again in its
// place, and all behind it wait. The price is the client's: a member that joins gets its first queue after a minute, the queues of a
// killed member stand still for 73 s, and each queue that a member gets starts 3 s late.
//
// What is not promised, since the client or the broker cannot:
//
//   - A queue that goes to another member takes its messages in work with it: they run to their end here and are delivered there too. Nobody is told.
//   - A message that is with this process for longer than Config.ConsumeTimeout is delivered again although it runs or waits here.
//   - A frozen member keeps its queues for two minutes.
//   - After a broker's crash deliveries begin again with the client's next heartbeat, half a minute later; new queues of a
//     topic are found as late.
//   - All members of a group must consume the same topics with the same filters: else some get nothing. A start that sees another
//     member with other topics is refused.
//   - A message that waits for a retry when its topic is taken out of Config.Topics goes round at the broker until the topic is back.
//   - The broker accepts committed offsets from anybody, also wrong ones: change them with the group stopped.
//   - The client's TLS verifies no certificate, and switches on for every RocketMQ client of the process (Config.UnverifiedTLS).
//   - The client leaves some 25 sleeping goroutines behind when Run ends: pause a consumer with Pause, not by ending it.
//   - The race detector finds races inside of the client: in orderly consumption, and where several queues are over Config.MaxWaiting at once.
//   - Broadcast consumption drops what fails, and is not offered.
package rocketmq
