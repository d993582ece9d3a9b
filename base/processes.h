// The processes of this machine as /proc shows them: which of them somebody started, wherever they
// ended up, and their end.
#pragma once

#include <sys/types.h>

#include <set>
#include <string>
#include <string_view>
#include <vector>

namespace skein {

// `root` (0: none) and the processes whose environment has an entry that begins with `mark` (empty:
// none), all with their descendants; zombies left out. The mark finds those that left their group,
// their session or their parents; descent finds those that lost the mark. Environments of other
// users' processes cannot be read. `spared` are left out, with what descends from them. Costs some
// 20 us a process of the machine.
std::vector<pid_t> FindStarted(pid_t root, std::string_view mark,
                               const std::set<pid_t>& spared = {});

// SIGKILL to all of them. Returns them; they are gone when FindStarted finds none.
std::vector<pid_t> KillStarted(pid_t root, std::string_view mark);

// SIGKILL to every process whose environment has the entry `with` and not the entry `without`;
// their descendants are left alone. Returns them.
std::vector<pid_t> KillThoseWith(std::string_view with, std::string_view without);

}  // namespace skein
