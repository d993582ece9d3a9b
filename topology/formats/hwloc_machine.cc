#include "topology/formats/hwloc_machine.h"

#include "absl/strings/str_cat.h"

namespace skein::topology {
namespace {

// An object's sets, twice as hwloc writes them.
std::string Sets(const char* cpus, const char* nodes) {
  return absl::StrCat(" cpuset='", cpus, "' complete_cpuset='", cpus, "' nodeset='", nodes,
                      "' complete_nodeset='", nodes, "'");
}

std::string Core(int index, const char* nodes) {
  const auto mask = [](int bits) { return absl::StrCat("0x", absl::Hex(bits, absl::kZeroPad8)); };
  const std::string both = Sets(mask(3 << 2 * index).c_str(), nodes);
  std::string text =
      absl::StrCat("<object type='L2Cache'", both, " gp_index='", 100 + index,
                   "' cache_size='2097152' depth='2' cache_linesize='64' cache_associativity='8' "
                   "cache_type='0'><object type='Core' os_index='",
                   index, "'", both, " gp_index='", 110 + index, "'>");
  for (int i = 2 * index; i < 2 * index + 2; ++i) {
    absl::StrAppend(&text, "<object type='PU' os_index='", i, "'",
                    Sets(mask(1 << i).c_str(), nodes), " gp_index='", 120 + i, "'/>");
  }
  return text + "</object></object>\n";
}

std::string Package(int index, const std::string& devices) {
  const char* const cpus = index == 0 ? "0x0000000f" : "0x000000f0";
  const char* const nodes = index == 0 ? "0x00000001" : "0x00000002";
  return absl::StrCat(
      "<object type='Package' os_index='", index, "'", Sets(cpus, nodes), " gp_index='", 80 + index,
      "'>\n<info name='CPUModel' value='Xeon 9 '/>\n<object type='NUMANode' os_index='", index, "'",
      Sets(cpus, nodes), " gp_index='", 90 + index, "' local_memory='", (index + 1) << 20,
      "'/>\n<object type='L3Cache' os_index='", index, "'", Sets(cpus, nodes), " gp_index='",
      95 + index, "' cache_size='33554432' depth='3' cache_linesize='64' cache_associativity='8' ",
      "cache_type='0'>\n", Core(2 * index, nodes), Core(2 * index + 1, nodes), "</object>\n",
      devices, "</object>\n");
}

std::string Nvml(int gp_index, int number) {
  return HwlocOsDevice(
      gp_index, absl::StrCat("nvml", number).c_str(), 1,
      "<info name='Backend' value='NVML'/><info name='GPUModel' value='NVIDIA A100'/>");
}
std::string Port(int gp_index, const char* bus_id, const char* buses, const std::string& inside) {
  return absl::StrCat("<object type='Bridge' gp_index='", gp_index,
                      "' bridge_type='1-1' depth='1' bridge_pci='0000:[", buses, "]' pci_busid='",
                      bus_id,
                      "' pci_type='0604 [10b5:9781] [0000:0000] 00' pci_link_speed='1.0'>\n",
                      inside, "</object>\n");
}

}  // namespace

std::string HwlocDevice(int gp_index, const char* bus_id, const char* type,
                        const std::string& inside) {
  return absl::StrCat("<object type='PCIDev' gp_index='", gp_index, "' pci_busid='", bus_id,
                      "' pci_type='", type, " [0000:0000] a1' pci_link_speed='16.0'>", inside,
                      "</object>\n");
}

std::string HwlocOsDevice(int gp_index, const char* name, int type, const std::string& inside) {
  return absl::StrCat("<object type='OSDev' gp_index='", gp_index, "' name='", name,
                      "' osdev_type='", type, "'>", inside, "</object>");
}

std::string HwlocHostBridge(int gp_index, const char* buses, const std::string& inside) {
  return absl::StrCat("<object type='Bridge' gp_index='", gp_index,
                      "' bridge_type='0-1' depth='0' bridge_pci='0000:[", buses, "]'>\n", inside,
                      "</object>\n");
}

std::string HwlocMachine(const std::string& behind) {
  const std::string second_switch =
      Port(14, "0000:14:00.0", "15-16",
           Port(15, "0000:15:00.0", "16-16",
                HwlocDevice(33, "0000:16:00.0", "0302 [10de:20b0]", Nvml(43, 2))));
  const std::string first = Port(
      10, "0000:10:00.0", "11-19",
      Port(11, "0000:11:00.0", "12-19",
           Port(12, "0000:12:00.0", "13-13",
                HwlocDevice(
                    32, "0000:13:00.0", "0302 [10de:20b0]",
                    Nvml(42, 1) +
                        HwlocOsDevice(52, "cuda0", 5,
                                      "<info name='CUDAGlobalMemorySize' value='41943040'/>"))) +
               Port(13, "0000:12:01.0", "14-16", second_switch) +
               Port(16, "0000:12:02.0", "17-17",
                    HwlocDevice(31, "0000:0a:00.0", "0302 [10de:20b0]", Nvml(41, 0))) +
               Port(17, "0000:12:03.0", "18-18",
                    HwlocDevice(34, "0000:18:00.0", "0207 [15b3:1017]",
                                HwlocOsDevice(44, "ib0", 2) + HwlocOsDevice(45, "mlx5_0", 3)))));
  const std::string board =
      Port(18, "0000:01:00.0", "02-02", HwlocDevice(35, "0000:02:00.0", "0300 [1a03:2000]", "")) +
      HwlocDevice(36, "0000:00:02.0", "0200 [8086:1521]", HwlocOsDevice(46, "eno1", 2)) +
      HwlocDevice(37, "0000:00:03.0", "0106 [8086:2822]", HwlocOsDevice(47, "sda", 0));
  const std::string second =
      Port(20, "0000:80:01.0", "81-81",
           HwlocDevice(38, "0000:81:00.0", "0302 [10de:20b0]", Nvml(48, 3))) +
      Port(21, "0000:80:02.0", "82-82",
           HwlocDevice(39, "0000:82:00.0", "0200 [15b3:101d]",
                       HwlocOsDevice(49, "eth1", 2) + HwlocOsDevice(50, "mlx5_1", 3)));
  return absl::StrCat(
      "<?xml version='1.0' encoding='UTF-8'?>\n<!DOCTYPE topology SYSTEM \"hwloc2.dtd\">\n"
      "<topology version='2.0'>\n<object type='Machine' os_index='0'",
      Sets("0x000000ff", "0x00000003"),
      " allowed_cpuset='0x000000ff' allowed_nodeset='0x00000003' gp_index='1'>\n"
      "<info name='HostName' value='node7'/>\n",
      Package(0, HwlocHostBridge(2, "00-02", board) + HwlocHostBridge(3, "10-19", first)),
      Package(1, HwlocHostBridge(4, "80-82", second)), "</object>\n", behind, "</topology>\n");
}

}  // namespace skein::topology
