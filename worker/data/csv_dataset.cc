#include <algorithm>
#include <cmath>
#include <cstddef>
#include <filesystem>
#include <span>
#include <string>
#include <type_traits>
#include <vector>

#include "worker/base/pulse.h"
#include "worker/config/strict_json.h"
#include "worker/data/csv.h"
#include "worker/data/dataset_types.h"
#include "worker/data/input_file.h"
#include "worker/data/message.h"
#include "worker/data/node_memory.h"
#include "worker/data/windows.h"

namespace dtrun::worker {
namespace {

namespace fs = std::filesystem;

constexpr std::size_t kPieceBytes = std::size_t{1} << 20;
// The part that is looked at before the job starts; in small pieces, so that the bytes read are about those
// of the rows.
constexpr std::size_t kRowsLookedAt = 100, kLookedAtBytes = 512;

bool is_one_file(const DataConfig& config) {
  std::error_code error;
  return !fs::is_directory(config.path, error);
}

fs::path path_of(const DataConfig& config, Split split) {
  if (is_one_file(config)) return config.path;
  return fs::path(config.path) / (split == Split::kTrain ? "train.csv" : "test.csv");
}

struct ReadTable {
  CsvTable table;
  std::uint64_t rows = 0;  // in the whole file; an estimate if it was not read to its end
};

Result<ReadTable> read_table(const DataConfig& config, const fs::path& path, std::size_t most_rows) {
  const auto file = InputFile::open(path);
  if (!file.ok()) {
    if (is_one_file(config)) return file.status();
    return Status(
        kExitNoInput,
        file.status().message() + "; a directory must hold train.csv and test.csv, or data.path be one file");
  }
  std::vector<std::uint8_t> piece;
  std::uint64_t offset = 0;
  Status broken;  // names the file, which the parser's messages do not
  const auto next = [&]() -> Result<std::span<const std::uint8_t>> {
    const std::uint64_t most = most_rows == SIZE_MAX ? kPieceBytes : kLookedAtBytes;
    piece.resize(std::min(most, file.value().size() - offset));
    broken = file.value().read(offset, piece);
    if (!broken.ok()) return broken;
    offset += piece.size();
    Pulse::beat();
    return std::span<const std::uint8_t>(piece);
  };
  auto table = parse_csv(next, {.label_column = config.label_column,
                                .classes = config.classes,
                                .delimiter = config.delimiter,
                                .header = config.header,
                                .most_rows = most_rows});
  if (!broken.ok()) return broken;
  if (!table.ok()) return table.status().within(path.string());
  const double rows_per_byte = static_cast<double>(table.value().labels.size()) / static_cast<double>(offset);
  return ReadTable{
      .table = std::move(table).value(),
      .rows = static_cast<std::uint64_t>(static_cast<double>(file.value().size()) * rows_per_byte)};
}

SampleSpec spec_of(std::size_t features, int classes) {
  return {.shape = {.channels = 1, .height = 1, .width = static_cast<int>(features)}, .classes = classes};
}

// The classes of a test split, where it is the end of a table.
struct TestClasses {
  std::uint64_t in_table = 0, in_test = 0;
  std::uint64_t by_chance = true;  // rows in any order may have left the others out
};

// REQUIRES: the last `test` rows are the test split.
TestClasses classes_of_test(const std::vector<std::int32_t>& labels, std::size_t test, int classes) {
  constexpr double kUnlikely = 0.001;
  std::vector<std::size_t> rows(static_cast<std::size_t>(classes)), in_test(rows);
  for (std::size_t row = 0; row < labels.size(); ++row) {
    ++rows[static_cast<std::size_t>(labels[row])];
    if (row >= labels.size() - test) ++in_test[static_cast<std::size_t>(labels[row])];
  }
  TestClasses found;
  std::size_t of_seen = 0;  // rows of classes that the test has
  for (std::size_t k = 0; k < rows.size(); ++k) {
    found.in_table += rows[k] > 0, found.in_test += in_test[k] > 0;
    if (in_test[k] > 0) of_seen += rows[k];
  }
  const double share = static_cast<double>(of_seen) / static_cast<double>(labels.size());
  found.by_chance = std::pow(share, static_cast<double>(test)) >= kUnlikely;
  return found;
}

// Before the values, which the labels follow.
struct CsvHeader {
  std::uint64_t features, rows, label, header, index;
  TestClasses classes;
};
static_assert(std::has_unique_object_representations_v<CsvHeader>);  // its bytes are hashed

void write_table(const CsvTable& table, const TestClasses& classes, const Room& room) {
  const CsvHeader header{.features = table.features,
                         .rows = table.labels.size(),
                         .label = table.label,
                         .header = table.header,
                         .index = table.index,
                         .classes = classes};
  const auto all =
      std::as_writable_bytes(room(sizeof header + sizeof(float) * header.rows * (header.features + 1)));
  std::byte* to = all.data();
  for (const auto& part : {std::as_bytes(std::span(&header, 1)), std::as_bytes(std::span(table.values)),
                           std::as_bytes(std::span(table.labels))})
    to = std::ranges::copy(part, to).out;
}

class Csv : public Dataset {
 public:
  Csv(HeldBytes table, const DataConfig& config)
      : config_(config),
        hash_(table.hash),
        memory_(std::move(table.memory)),
        table_(*reinterpret_cast<const CsvHeader*>(table.bytes.data())),
        values_(reinterpret_cast<const float*>(&table.bytes[sizeof(CsvHeader)])),
        labels_(reinterpret_cast<const std::int32_t*>(values_ + table_.rows * table_.features)) {}

  std::int64_t size() const override { return static_cast<std::int64_t>(table_.rows); }
  SampleSpec spec() const override { return spec_of(table_.features, config_.classes); }
  std::string values() const override { return "number"; }
  std::uint64_t contents() const override { return hash_; }
  std::string guessed() const override {
    const bool named = std::to_string(table_.label) != config_.label_column;
    return "header: " + std::string(table_.header ? "yes" : "no") + "; label: column " +
           std::to_string(table_.label) + (named ? " \"" + printable(config_.label_column) + "\"" : "") +
           "; " + counted(static_cast<int>(table_.features), "feature") +
           (table_.index ? "; column 1 has no name: it is taken for an index, and left out" : "");
  }
  std::string doubts() const override {
    const TestClasses& classes = table_.classes;
    if (classes.by_chance) return "";
    const std::string only = classes.in_test == 1 ? "class " + std::to_string(labels_[0])
                                                  : std::to_string(classes.in_test) + " classes";
    return "its rows seem to be sorted by class: the last " + with_thousands(table_.rows) +
           ", which are the test, have only " + only + " of " + std::to_string(classes.in_table) +
           ", so that an accuracy says little; shuffle the rows";
  }

  void fill(std::span<const std::uint32_t> samples, const SampleRows& rows) const override {
    float* values = rows.values;
    std::int32_t* labels = rows.targets;
    for (const std::uint32_t sample : samples) {
      values = std::copy_n(values_ + sample * table_.features, table_.features, values);
      *labels++ = labels_[sample];
    }
  }

 private:
  const DataConfig config_;
  const std::uint64_t hash_;
  std::shared_ptr<const void> memory_;
  CsvHeader table_;
  const float* values_;
  const std::int32_t* labels_;
};

// `held`: rows in memory.
DatasetFacts facts_of(const DataConfig& config, const CsvTable& table, std::uint64_t train,
                      std::uint64_t test, std::uint64_t held) {
  return {.spec = spec_of(table.features, config.classes),
          .train = static_cast<std::int64_t>(train),
          .test = static_cast<std::int64_t>(test),
          .bytes = held * (table.features + 1) * sizeof(float)};
}

// REQUIRES: the table is of a file that has both splits.
Status keep_split(CsvTable& table, const DataConfig& config, Split split) {
  const std::size_t rows = table.labels.size();
  if (rows < 2) {
    return bad_input(config.path, "has one row only: none is left for the test; get more data");
  }
  const std::size_t train = rows - test_share(rows, config.test_fraction);
  const auto cut = [&](auto& all, std::size_t width) {
    if (split == Split::kTrain) {
      all.resize(train * width);
    } else {
      all.erase(all.begin(), all.begin() + static_cast<std::ptrdiff_t>(train * width));
    }
  };
  cut(table.values, table.features);
  cut(table.labels, 1);
  return Status();
}

}  // namespace

LoadedDataset load_csv(const DataConfig& config, Split split, NodeMemory& memory) {
  const fs::path path = path_of(config, split);
  const std::string what = split == Split::kTrain ? "csv to train on" : "csv to test with";
  ASSIGN_OR_RETURN(auto held, memory.bytes_of(what, {path}, [&](const Room& room) -> Status {
    ASSIGN_OR_RETURN(auto read, read_table(config, path, SIZE_MAX));
    TestClasses classes;
    if (is_one_file(config)) {
      const std::vector<std::int32_t>& labels = read.table.labels;
      if (split == Split::kTest)
        classes = classes_of_test(labels, test_share(labels.size(), config.test_fraction), config.classes);
      RETURN_IF_ERROR(keep_split(read.table, config, split));
    }
    write_table(read.table, classes, room);
    return Status();
  }));
  return std::unique_ptr<Dataset>(std::make_unique<Csv>(std::move(held), config));
}

Result<DatasetFacts> check_csv(const DataConfig& config) {
  ASSIGN_OR_RETURN(const auto train, read_table(config, path_of(config, Split::kTrain), kRowsLookedAt));
  const std::uint64_t rows = train.rows;
  if (is_one_file(config)) {
    const std::uint64_t test_rows = test_share(rows, config.test_fraction);
    // Each split reads the whole file, and then copies its rows.
    return facts_of(config, train.table, rows - test_rows, test_rows, 2 * rows);
  }
  const fs::path test_path = path_of(config, Split::kTest);
  ASSIGN_OR_RETURN(const auto test, read_table(config, test_path, kRowsLookedAt));
  const std::size_t features = train.table.features, of_test = test.table.features;
  if (features == of_test) return facts_of(config, train.table, rows, test.rows, rows + test.rows);
  const auto columns = [](const CsvTable& table) {
    return std::to_string(table.features + (table.index ? 2 : 1));
  };
  return bad_input(test_path, "has " + columns(test.table) + " columns, but train.csv has " +
                                  columns(train.table) + "; they must be the same");
}

}  // namespace dtrun::worker
