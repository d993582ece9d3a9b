#include "tests/cluster/answer.h"

#include <string>
#include <vector>

#include "gtest/gtest.h"

namespace skein::testing {
namespace {

// A letter an event: Accepted (of two answers), Tokens and Finished of answers 0 and 1, Error.
v1::GenerateEvent Event(char letter) {
  v1::GenerateEvent event;
  switch (letter) {
    case 'a':
      event.mutable_accepted()->set_n(2);
      break;
    case 't':
    case 'u':
      event.mutable_tokens()->set_answer(letter - 't');
      break;
    case 'f':
    case 'g':
      event.mutable_finished()->set_answer(letter - 'f');
      break;
    case 'e':
      event.mutable_error()->set_code(grpc::StatusCode::INTERNAL);
      break;
    default:
      break;
  }
  return event;
}

TEST(AnswerTest, FaultsOfStreams) {
  struct Case {
    std::string events;
    grpc::StatusCode status;
    bool right;
  };
  using enum grpc::StatusCode;
  for (const Case& c : std::vector<Case>{
           {"atutufg", OK, true},
           {"atfuug", OK, true},
           {"atug", INTERNAL, true},
           {"ate", INTERNAL, true},
           {"", INVALID_ARGUMENT, true},
           {"atfg", CANCELLED, true},  // before the status came
           {"", OK, false},
           {"atu", OK, false},
           {"atuf", OK, false},
           {"atuff", OK, false},
           {"atufgg", OK, false},
           {"atufgt", OK, false},
           {"atuftg", OK, false},
           {"tufg", OK, false},
           {"aatufg", OK, false},
           {"atufge", OK, false},
           {"atefg", OK, false},
           {"atefg", CANCELLED, false},
           {"ateg", INTERNAL, false},
           {"atee", INTERNAL, false},
           {"atet", INTERNAL, false},
           {"atufg", INTERNAL, false},
           {"atufg.", OK, false},
       }) {
    Answer answer;
    for (char letter : c.events) answer.Add(Event(letter));
    answer.status = grpc::Status(c.status, "");
    EXPECT_EQ(answer.Fault().empty(), c.right)
        << c.events << " and " << c.status << ": " << answer.Fault();
  }
}

}  // namespace
}  // namespace skein::testing
