#include "tests/cluster/answer.h"

#include "absl/strings/str_cat.h"

namespace skein::testing {

void Answer::Add(const v1::GenerateEvent& event) {
  const bool may_come = accepted == (event.has_accepted() ? 0 : 1) && errors == 0;
  bool in_place = may_come;
  switch (event.event_case()) {
    case v1::GenerateEvent::kAccepted:
      ++accepted;
      seed = event.accepted().seed();
      n = event.accepted().n();
      break;
    case v1::GenerateEvent::kTokens: {
      OneAnswer& one = by_answer[event.tokens().answer()];
      one.text += event.tokens().text();
      in_place =
          may_come && event.tokens().answer() < n && !ended.contains(event.tokens().answer());
      text += event.tokens().text();
      for (const v1::Token& token : event.tokens().tokens()) {
        tokens.push_back(token.id());
        one.tokens.push_back(token.id());
      }
      break;
    }
    case v1::GenerateEvent::kFinished:
      ++finished;
      in_place = may_come && event.finished().answer() < n &&
                 ended.insert(event.finished().answer()).second;
      reason = event.finished().reason();
      by_answer[event.finished().answer()].reason = reason;
      break;
    case v1::GenerateEvent::kError:
      ++errors;
      in_place = may_come && ended.size() < n;
      error = event.error().message();
      break;
    case v1::GenerateEvent::EVENT_NOT_SET:
      in_place = false;
      break;
  }
  misplaced += in_place ? 0 : 1;
}

std::string Answer::Fault() const {
  if (misplaced > 0) return absl::StrCat(misplaced, " events where none of their kind may come");
  const bool whole = accepted == 1 && ended.size() == n;
  if (status.ok()) {
    return whole && errors == 0 ? ""
                                : absl::StrCat("OK with ", accepted, " Accepted, ", finished,
                                               " Finished of ", n, ", ", errors, " Error");
  }
  // The client itself, or a connection that breaks, may end a stream between its last event and OK.
  const grpc::StatusCode code = status.error_code();
  if (code == grpc::StatusCode::CANCELLED || code == grpc::StatusCode::DEADLINE_EXCEEDED ||
      code == grpc::StatusCode::UNAVAILABLE) {
    return "";
  }
  return whole ? absl::StrCat("all ", n, " are Finished, but the status is ", code) : "";
}

}  // namespace skein::testing
