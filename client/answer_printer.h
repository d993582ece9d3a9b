// An answer's events, for people or programs.
#pragma once

#include <cstdint>
#include <vector>

#include "proto/inference.pb.h"

namespace skein::client {

// Text to standard output as it comes, statistics and log probabilities to standard error. Of
// several answers, each has a heading; the first one that is not finished streams, and what comes
// of later ones is kept until their turn. Not thread-safe.
class AnswerPrinter {
 public:
  // As JSON: every event as it comes, in a line.
  explicit AnswerPrinter(bool json) : json_(json) {}

  void Print(const v1::GenerateEvent& event);
  // After the last event: what is left where the stream ended early.
  void End();

 private:
  // Of the current answer; true at its end.
  bool PrintNow(const v1::GenerateEvent& event);
  bool PrintHeadingAndWhatWasKept();
  void EndLine();

  const bool json_;
  v1::Accepted accepted_;
  uint32_t current_ = 0;                              // the answer that streams
  std::vector<std::vector<v1::GenerateEvent>> kept_;  // by answer
  bool open_line_ = false;
};

}  // namespace skein::client
