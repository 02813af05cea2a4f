#include "worker/device/cuda/libraries/search.h"

#include <algorithm>
#include <sstream>

namespace dtrun::worker::cuda {
namespace {

void add_place(std::vector<std::string>& places, const std::string& place) {
  if (std::find(places.begin(), places.end(), place) == places.end()) places.push_back(place);
}

}  // namespace

std::vector<std::string> installed_places(const std::string& soname, const LibraryFolders& folders) {
  std::vector<std::string> places;
  std::istringstream own(folders.own);
  for (std::string folder; std::getline(own, folder, ':');)
    if (!folder.empty()) add_place(places, folder + "/" + soname);
  add_place(places, soname);
  add_place(places, "/usr/local/cuda/lib64/" + soname);
  if (!folders.cuda_home.empty()) add_place(places, folders.cuda_home + "/lib64/" + soname);
  add_place(places, "/usr/local/cuda/targets/x86_64-linux/lib/" + soname);
  add_place(places, "/usr/lib/x86_64-linux-gnu/" + soname);
  return places;
}

std::vector<std::string> wheel_places(
    const std::string& soname, const std::vector<std::string>& python_path,
    const std::function<std::vector<std::string>(const std::string& folder)>& entries) {
  std::vector<std::string> places;
  for (const std::string& packages : python_path) {
    std::vector<std::string> names = entries(packages + "/nvidia");
    std::sort(names.begin(), names.end());
    for (const std::string& name : names) {
      const std::string folder = packages + "/nvidia/" + name + "/lib";
      const std::vector<std::string> files = entries(folder);
      if (std::find(files.begin(), files.end(), soname) != files.end())
        add_place(places, folder + "/" + soname);
    }
  }
  return places;
}

}  // namespace dtrun::worker::cuda
