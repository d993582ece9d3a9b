// Names threads for whoever looks at a process from outside: `top -H`, gdb, perf, /proc.
#pragma once

#include <pthread.h>

namespace skein {

// `name`: at most 15 characters; a longer one is ignored. Threads that this one starts inherit it.
inline void NameThisThread(const char* name) { pthread_setname_np(pthread_self(), name); }

}  // namespace skein
