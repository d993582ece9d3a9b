// Which processors a rank's threads run on: those near its device, where the system tells of them.
#pragma once

#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "topology/cpus.h"

namespace skein::topology {

// The processors near a PCI device, "0000:9A:00.0", by /sys; none where nothing is told. `root` is
// put before the path.
Cpus CpusNear(std::string_view pci_address, const std::string& root = "");

// What a process may run on (`allowed`) and what is near its device make of its binding.
struct Binding {
  Cpus cpus;         // to be bound to; none: it stays as it is
  std::string says;  // for the log; may be empty
  bool warns = false;
};
// Pure. A binding that whoever started the process has made stays where it lies within `near`, or
// wholly outside; else the process gets what both have.
Binding ChooseBinding(const Cpus& allowed, const Cpus& near, std::string_view device);

// Of the calling thread.
absl::StatusOr<Cpus> AllowedCpus();
// Binds all threads that this process has by now; later ones inherit it. What the system does not
// allow of `cpus` is left out.
absl::Status BindThreads(const Cpus& cpus);
// All that the system allows.
absl::Status UnbindThreads();

}  // namespace skein::topology
