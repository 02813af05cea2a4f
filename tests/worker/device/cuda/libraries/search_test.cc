// The places where CUDA's libraries are looked for, in order.
#include "worker/device/cuda/libraries/search.h"

#include <doctest/doctest.h>

#include <map>

namespace dtrun::search_test {

using namespace dtrun::worker::cuda;

namespace {

using Places = std::vector<std::string>;

// A file system: a folder's entries.
auto listing(std::map<std::string, Places> folders) {
  return [folders = std::move(folders)](const std::string& folder) {
    const auto found = folders.find(folder);
    return found == folders.end() ? Places() : found->second;
  };
}

}  // namespace

TEST_CASE("the user's own folders come first, then the loader's rules, then the toolkit's folders") {
  CHECK(installed_places("libx.so.1", {.own = "/mine:/ours", .cuda_home = "/opt/cuda"}) ==
        Places{"/mine/libx.so.1", "/ours/libx.so.1", "libx.so.1", "/usr/local/cuda/lib64/libx.so.1",
               "/opt/cuda/lib64/libx.so.1", "/usr/local/cuda/targets/x86_64-linux/lib/libx.so.1",
               "/usr/lib/x86_64-linux-gnu/libx.so.1"});
}

TEST_CASE("empty entries of a list of folders are none, and no place is tried twice") {
  const Places plain = installed_places("libx.so.1", {});
  CHECK(plain.front() == "libx.so.1");
  CHECK(installed_places("libx.so.1", {.own = "::", .cuda_home = "/usr/local/cuda"}) == plain);
  Places expected = plain;
  expected.insert(expected.begin(), "/mine/libx.so.1");
  CHECK(installed_places("libx.so.1", {.own = ":/mine::/mine:", .cuda_home = ""}) == expected);
}

TEST_CASE("wheels: every package of NVIDIA's that has the file, in the order of Python's path") {
  const auto files =
      listing({{"/venv/site-packages/nvidia", {"cudnn", "cu13"}},
               {"/venv/site-packages/nvidia/cu13/lib", {"libcublasLt.so.13", "libnvrtc.so.13"}},
               {"/venv/site-packages/nvidia/cudnn/lib", {"libcudnn.so.9", "libcudnn_graph.so.9"}},
               {"/usr/lib/python3/dist-packages/nvidia", {"cublas"}},
               {"/usr/lib/python3/dist-packages/nvidia/cublas/lib", {"libcublasLt.so.13"}}});
  const Places path{"/usr/lib/python3.11", "/venv/site-packages", "/usr/lib/python3/dist-packages",
                    "/venv/site-packages"};
  CHECK(wheel_places("libcublasLt.so.13", path, files) ==
        Places{"/venv/site-packages/nvidia/cu13/lib/libcublasLt.so.13",
               "/usr/lib/python3/dist-packages/nvidia/cublas/lib/libcublasLt.so.13"});
  CHECK(wheel_places("libcudnn.so.9", path, files) ==
        Places{"/venv/site-packages/nvidia/cudnn/lib/libcudnn.so.9"});
  CHECK(wheel_places("libcublasLt.so.12", path, files) == Places());
}

}  // namespace dtrun::search_test
