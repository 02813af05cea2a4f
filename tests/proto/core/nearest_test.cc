#include "proto/core/nearest.h"

#include <doctest/doctest.h>

#include <vector>

namespace dtrun::nearest_test {
namespace {

const std::vector<std::string> kNames = {"nnodes", "nproc_per_node", "node_rank", "rdzv_id"};

TEST_CASE("a mistyped name finds the one that was meant") {
  CHECK(nearest_name("nnode", kNames) == "nnodes");
  CHECK(nearest_name("nproc-per-nod", kNames) == "nproc_per_node");
  CHECK(nearest_name("rdzv_idd", kNames) == "rdzv_id");
  CHECK(nearest_name("node_rank", kNames) == "node_rank");
}

TEST_CASE("two letters that changed places are one mistake") {
  const std::vector<std::string> names = {"sgd", "adamw"};
  CHECK(nearest_name("sdg", names) == "sgd");
  CHECK(nearest_name("gsd", names) == "sgd");
  CHECK(nearest_name("admaw", names) == "adamw");
  CHECK(nearest_name("dgs", names) == "");
}

TEST_CASE("the first word of a single name finds it") {
  CHECK(nearest_name("node", kNames) == "nnodes");
  CHECK(nearest_name("nproc", kNames) == "nproc_per_node");
  const std::vector<std::string> names = {"label_column", "label_smoothing", "train_files"};
  CHECK(nearest_name("train", names) == "train_files");
  CHECK(nearest_name("label", names) == "");
  CHECK(nearest_name("tr", names) == "");
}

TEST_CASE("a name that is like none finds none") {
  CHECK(nearest_name("verbose", kNames) == "");
  CHECK(nearest_name("", kNames) == "");
  CHECK(nearest_name("x", kNames) == "");
  CHECK(nearest_name("nnodes", std::vector<std::string>()) == "");
}

}  // namespace
}  // namespace dtrun::nearest_test
