// What of a schema must never change, while a program of its version may be at the other end.
#pragma once

#include <google/protobuf/descriptor.h>

#include <string>
#include <vector>

namespace skein {

// What `now` has not as `then` had it, a line each: messages, fields (number, name, type, how
// many), oneofs, values of enums, services and their methods; and numbers and names that were given
// up and are used again. What `now` has besides is fine.
std::vector<std::string> Changes(const google::protobuf::FileDescriptor& then,
                                 const google::protobuf::DescriptorPool& now);

}  // namespace skein
