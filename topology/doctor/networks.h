// Which networks a host is in, and which of its interfaces a setting names. Pure.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "topology/doctor/facts.h"

namespace skein::topology {

// "10.77.0.0/24"; empty for an interface without an address of IPv4.
std::string NetworkOf(const InterfaceFacts& interface);

// Whether a list like "eth0,10.0.0.0/8" names an interface: exactly, as Open MPI has it; or, with
// `by_prefix`, by how its name begins, as NCCL has it, but exactly behind "=".
bool IsNamed(std::string_view list, bool by_prefix, const InterfaceFacts& interface);

// What a host's `setting` names, as IsNamed; where it has none all that are up, without loopback
// and what its setting `exclude` names.
std::vector<InterfaceFacts> UsedInterfaces(const RankFacts& host, const std::string& setting,
                                           bool by_prefix, const std::string& exclude = "");

}  // namespace skein::topology
