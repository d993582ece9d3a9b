#include "client/topo.h"

#include <algorithm>
#include <cstdio>
#include <string>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "base/file.h"
#include "base/flags/flags.h"
#include "base/status_util.h"
#include "base/units.h"
#include "client/json.h"
#include "proto/topology.pb.h"
#include "topology/cpus.h"
#include "topology/formats/nvidia_smi.h"
#include "topology/interconnect.h"

namespace skein::client {
namespace {

using topology::Interconnect;

constexpr int64_t kMostBytes = int64_t{1} << 20;

absl::StatusOr<Interconnect> Read(const std::string& file) {
  const absl::StatusOr<std::string> text =
      file == "-" ? ReadStandardInput(kMostBytes) : ReadFileOrPipe(file, kMostBytes);
  if (!text.ok()) return text.status();
  const absl::StatusOr<Interconnect> read = topology::ParseNvidiaSmi(*text);
  if (!read.ok()) return Annotate(read.status(), file == "-" ? "standard input" : file);
  return read;
}

std::vector<std::string> NamesOf(const Interconnect& of, const std::vector<int>& gpus) {
  std::vector<std::string> names;
  for (const int gpu : gpus) names.push_back(of.gpus[gpu].name);
  return names;
}

std::string NameOf(const topology::Nic& nic) {
  const bool both = !nic.device.empty() && nic.device != nic.name;
  return both ? absl::StrCat(nic.name, " (", nic.device, ")") : nic.name;
}

void PrintMatrix(const Interconnect& of) {
  std::vector<std::string> names;
  for (const topology::Gpu& gpu : of.gpus) names.push_back(gpu.name);
  for (const topology::Nic& nic : of.nics) names.push_back(nic.name);
  size_t width = 4;
  for (const std::string& name : names) width = std::max(width, name.size());
  const auto cell = [width](const std::string& text) {
    return absl::StrFormat("  %-*s", static_cast<int>(width), text);
  };
  std::string header = cell("");
  for (const std::string& name : names) absl::StrAppend(&header, cell(name));
  absl::PrintF("%s\n", absl::StripTrailingAsciiWhitespace(header));
  for (size_t i = 0; i < of.gpus.size(); ++i) {
    std::string row = cell(names[i]);
    for (size_t j = 0; j < names.size(); ++j) {
      absl::StrAppend(&row, cell(i == j ? "-" : topology::ToString(of.connections[i][j])));
    }
    absl::PrintF("%s\n", absl::StripTrailingAsciiWhitespace(row));
  }
}

void PrintGpus(const Interconnect& of) {
  for (size_t i = 0; i < of.gpus.size(); ++i) {
    const topology::Gpu& gpu = of.gpus[i];
    std::vector<std::string> near;
    if (!gpu.cpus.empty()) near.push_back(absl::StrCat("cores ", topology::FormatCpus(gpu.cpus)));
    if (gpu.numa_node >= 0) near.push_back(absl::StrCat("NUMA node ", gpu.numa_node));
    std::vector<std::string> nics;
    for (const int nic : topology::NearestNics(of, static_cast<int>(i))) {
      nics.push_back(absl::StrCat(NameOf(of.nics[nic]), " over ",
                                  topology::ToString(of.OfGpuAndNic(static_cast<int>(i), nic))));
    }
    if (!nics.empty()) near.push_back(absl::StrJoin(nics, " and "));
    absl::PrintF("%s: %s\n", gpu.name, near.empty() ? "nothing told" : absl::StrJoin(near, ", "));
  }
}

void Print(const Interconnect& of) {
  absl::PrintF("%s, %s\n\n", FormatCount(static_cast<int64_t>(of.gpus.size()), "GPU"),
               FormatCount(static_cast<int64_t>(of.nics.size()), "NIC"));
  PrintMatrix(of);
  absl::PrintF(
      "\nNV#: # NVLinks. PIX, PXB: one or several PCIe switches. PHB: a PCIe host bridge.\n"
      "NODE: host bridges of a NUMA node. SYS: the link between NUMA nodes.\n\n");
  PrintGpus(of);
  std::vector<std::string> islands;
  for (const std::vector<int>& island : topology::Islands(of)) {
    islands.push_back(absl::StrJoin(NamesOf(of, island), " "));
  }
  absl::PrintF("\nNVLink connects each two of: %s\n", absl::StrJoin(islands, " | "));
}

topology::v1::Interconnect ToProto(const Interconnect& of) {
  topology::v1::Interconnect message;
  for (const topology::Gpu& from : of.gpus) {
    topology::v1::Gpu& to = *message.add_gpus();
    to.set_name(from.name);
    to.set_numa_node(from.numa_node);
    to.mutable_cpus()->Add(from.cpus.begin(), from.cpus.end());
  }
  for (const topology::Nic& from : of.nics) {
    topology::v1::Nic& to = *message.add_nics();
    to.set_name(from.name);
    to.set_device(from.device);
  }
  for (const std::vector<topology::Connection>& row : of.connections) {
    auto& to = *message.add_connections()->mutable_to();
    for (const topology::Connection& connection : row) *to.Add() = topology::ToString(connection);
  }
  for (const std::vector<int>& island : topology::Islands(of)) {
    message.add_islands()->mutable_gpus()->Add(island.begin(), island.end());
  }
  return message;
}

}  // namespace

void DeclareTopo(CLI::App& command, TopoFlags& flags) {
  command
      .add_option("file", flags.file,
                  "What `nvidia-smi topo -m` printed; -: standard input, as in `nvidia-smi topo -m "
                  "| skein topo -`")
      ->required()
      ->check(NotEmpty());
  command.add_flag("--json", flags.json, "Print JSON");
}

int Topo(const TopoFlags& flags) {
  const absl::StatusOr<Interconnect> read = Read(flags.file);
  if (!read.ok()) {
    absl::FPrintF(stderr, "skein: %s\n", std::string(read.status().message()));
    return kExitError;
  }
  if (flags.json) {
    absl::PrintF("%s\n", ToJson(ToProto(*read)));
  } else {
    Print(*read);
  }
  return kExitOk;
}

}  // namespace skein::client
