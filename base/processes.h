// Finds in /proc the processes that somebody started on this machine, wherever they ended up, and
// kills them.
#pragma once

#include <sys/types.h>

#include <set>
#include <string>
#include <string_view>
#include <vector>

namespace skein {

// Finds `root` (0: none) and the processes whose environment has an entry that begins with `mark`
// (empty: none), all with their descendants. Leaves out zombies. The mark finds those that left
// their group, their session or their parents; descent finds those that lost the mark. Environments
// of other users' processes cannot be read. Leaves out `spared` and its descendants. Costs some 20
// us per process of the machine.
std::vector<pid_t> FindStarted(pid_t root, std::string_view mark,
                               const std::set<pid_t>& spared = {});

// Sends SIGKILL to all processes that FindStarted finds, and returns them. They are gone when
// FindStarted finds none.
std::vector<pid_t> KillStarted(pid_t root, std::string_view mark);

// Sends SIGKILL to every process whose environment has the entry `with` and not the entry
// `without`, and returns them. Leaves their descendants alone.
std::vector<pid_t> KillThoseWith(std::string_view with, std::string_view without);

}  // namespace skein
