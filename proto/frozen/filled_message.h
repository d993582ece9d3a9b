// Messages whose every field says which one it is.
#pragma once

#include <google/protobuf/message.h>

#include <set>
#include <string>

namespace skein {

// Sets every field to what follows from its full name; of a oneof's, that number `alternative`,
// going round.
void Fill(google::protobuf::Message& message, int alternative);

// Empty where each field that is set, here and below, has what follows from its name, and nothing
// is there without a name; else which has not. Adds the full names of what is set to `seen`.
std::string WhatIsNotAsFilled(const google::protobuf::Message& message,
                              std::set<std::string>& seen);

}  // namespace skein
