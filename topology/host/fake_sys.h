// A /sys, a /proc/meminfo and a /dev/shm in a folder that ends with the object.
#pragma once

#include <filesystem>
#include <fstream>
#include <string>

#include "gtest/gtest.h"

namespace skein::topology {

class FakeSys {
 public:
  FakeSys()
      : root_(::testing::TempDir() + "/fake_sys_" +
              ::testing::UnitTest::GetInstance()->current_test_info()->name()) {
    std::filesystem::remove_all(root_);
    Write("/proc/meminfo", "MemAvailable: 10240 kB\n");  // 10 MiB
    std::filesystem::create_directories(root_ + "/dev/shm");
  }
  ~FakeSys() { std::filesystem::remove_all(root_); }
  FakeSys(const FakeSys&) = delete;
  FakeSys& operator=(const FakeSys&) = delete;

  const std::string& root() const { return root_; }

  void Write(const std::string& path, const std::string& text) const {
    const std::filesystem::path file = root_ + path;
    std::filesystem::create_directories(file.parent_path());
    std::ofstream(file) << text;
  }

  // `chain`: what lies below /sys/devices, "pci0000:15/0000:15:01.0/0000:16:00.0".
  std::string Pci(const std::string& chain, const std::string& numa_node = "",
                  const std::string& cpus = "") const {
    const std::string address = chain.substr(chain.rfind('/') + 1);
    const std::string device = "/sys/devices/" + chain;
    std::filesystem::create_directories(root_ + device);
    if (!numa_node.empty()) Write(device + "/numa_node", numa_node);
    if (!cpus.empty()) Write(device + "/local_cpulist", cpus);
    Link("/sys/bus/pci/devices/" + address, "../../../devices/" + chain);
    return address;
  }

  // A device of a class, `own` of /sys/devices, "pci.../net/eth0", with a link to `device` above.
  void Class(const std::string& kind, const std::string& name, const std::string& device) const {
    const std::string own = "/sys/devices/" + device + "/" + kind + "/" + name;
    std::filesystem::create_directories(root_ + own);
    Link(own + "/device", "../..");
    Link("/sys/class/" + kind + "/" + name, "../../devices/" + device + "/" + kind + "/" + name);
  }

  void Rdma(const std::string& name, const std::string& device, const std::string& rate,
            const std::string& layer, const std::string& state, int port = 1) const {
    if (port == 1) Class("infiniband", name, device);
    const std::string files =
        "/sys/class/infiniband/" + name + "/ports/" + std::to_string(port) + "/";
    Write(files + "rate", rate);
    Write(files + "link_layer", layer);
    Write(files + "state", state);
  }

  void Net(const std::string& name, const std::string& device, const std::string& speed,
           const std::string& operstate = "up\n", const std::string& type = "1\n") const {
    Class("net", name, device);
    const std::string files = "/sys/class/net/" + name + "/";
    if (!speed.empty()) Write(files + "speed", speed);
    Write(files + "operstate", operstate);
    Write(files + "type", type);
  }

  void Link(const std::string& path, const std::string& target) const {
    const std::filesystem::path link = root_ + path;
    std::filesystem::create_directories(link.parent_path());
    std::filesystem::create_symlink(target, link);
  }

 private:
  const std::string root_;
};

}  // namespace skein::topology
