// What came back of one Generate call, and whether it ended as the contract says.
#pragma once

#include <grpcpp/grpcpp.h>

#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "proto/inference.pb.h"

namespace skein::testing {

struct OneAnswer {
  std::vector<uint32_t> tokens;
  std::string text;
  v1::Finished::Reason reason = v1::Finished::REASON_UNSPECIFIED;
};

struct Answer {
  // Takes the next event.
  void Add(const v1::GenerateEvent& event);
  // How the stream, with its status, breaks the contract: an Accepted first, one Finished for each
  // answer exactly where the status is OK, at most one Error where it is not, and nothing after an
  // end. Empty: not at all.
  std::string Fault() const;

  grpc::Status status;
  int accepted = 0;  // events of a kind
  int finished = 0;
  int errors = 0;
  int misplaced = 0;         // events where none of their kind may come
  uint32_t n = 0;            // as Accepted said
  std::set<uint32_t> ended;  // of them
  uint64_t seed = 0;
  std::map<uint32_t, OneAnswer> by_answer;
  // Of all answers, as they came.
  std::vector<uint32_t> tokens;
  std::string text;
  v1::Finished::Reason reason = v1::Finished::REASON_UNSPECIFIED;
  std::string error;  // of an Error event
};

}  // namespace skein::testing
