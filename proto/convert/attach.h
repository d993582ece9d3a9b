// The attach protocol's contract (parallel/attach/) to proto/cluster.proto and back: the one codec
// of both sides.
#pragma once

#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/expert_load.h"
#include "parallel/attach/messages.h"
#include "parallel/comm/rank_times.h"
#include "proto/cluster.pb.h"

namespace skein::convert {

// Words of ranks, which are strangers', become bounded and printable (base/printable.h) on the way
// from the wire. What names a rank or a job is refused where it is too long; all else is cut.

// InvalidArgument for an id that is empty, cannot be printed or is too long, and for what has not
// the size of a key.
absl::Status CheckJob(const std::string& id, const std::string& key);

cluster::v1::ProtocolRange ToProto(const attach::ProtocolRange& protocols);
attach::ProtocolRange FromProto(const cluster::v1::ProtocolRange& wire);

cluster::v1::Hello ToProto(const attach::Hello& hello);
// InvalidArgument names the field. A job's key is looked at where protocols are told: without these
// a Hello is good for a refusal alone.
absl::StatusOr<attach::Hello> FromProto(const cluster::v1::Hello& wire);

cluster::v1::Welcome ToProto(const attach::Welcome& welcome);
attach::Welcome FromProto(const cluster::v1::Welcome& wire);

cluster::v1::Ready ToProto(const attach::Ready& ready);
attach::Ready FromProto(const cluster::v1::Ready& wire);

// The step of the operation itself does not travel, since it is progress.step; nor does a deadline
// without an operation. An operation of an unknown kind is dropped: no worker sends one.
cluster::v1::Heartbeat ToProto(const attach::Heartbeat& heartbeat);
cluster::v1::ExpertLoad ToProto(const ExpertLoad& load);
cluster::v1::RankTimes ToProto(const comm::RankTimes& times);
attach::Heartbeat FromProto(const cluster::v1::Heartbeat& wire);

cluster::v1::Failure ToProto(const absl::Status& failure);
// Never OK.
absl::Status FromProto(const cluster::v1::Failure& wire);

}  // namespace skein::convert
