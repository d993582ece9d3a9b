// The trace that a client's call is a part of, as W3C's Trace Context has it.
#pragma once

#include <string_view>

namespace skein::coordinator {

// The trace id, 32 hexadecimal digits, of what a `traceparent` header says; "": it is none as the
// recommendation wants it, which is to be taken as if it were not there. Of later versions, what is
// behind the flags is ignored.
std::string_view TraceIdOf(std::string_view traceparent);

}  // namespace skein::coordinator
