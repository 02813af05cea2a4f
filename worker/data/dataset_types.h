// The data sets by type, each in a file of its own. Failures have EX_NOINPUT and name the file.
#pragma once

#include <memory>

#include "proto/core/status.h"
#include "worker/data/dataset.h"

namespace dtrun::worker {

using LoadedDataset = Result<std::unique_ptr<Dataset>>;

// Fashion-MNIST (and any data set in its four-file form): images of one channel in ten classes.
LoadedDataset load_fashion_mnist(const DataConfig& config, Split split, NodeMemory& memory);
Result<DatasetFacts> check_fashion_mnist(const DataConfig& config);

// Any data set in the files of the MNIST family: EMNIST, KMNIST, or a user's own arrays of bytes. data.path
// is a directory with four IDX files, as gzip or not: their names have "-idx" in them, and "train", or "t10k"
// or "test"; those of the labels "labels" as well.
LoadedDataset load_idx(const DataConfig& config, Split split, NodeMemory& memory);
Result<DatasetFacts> check_idx(const DataConfig& config);

// CIFAR-10 and CIFAR-100: the binary version's files in the directory data.path.
LoadedDataset load_cifar(const DataConfig& config, Split split, NodeMemory& memory);
Result<DatasetFacts> check_cifar(const DataConfig& config);

// PNGs and JPEGs in folders train/CLASS and val/CLASS, or CLASS, below data.path. Decoded on all processors,
// once on a node. The check looks at the first image of each class.
LoadedDataset load_image_folder(const DataConfig& config, Split split, NodeMemory& memory);
Result<DatasetFacts> check_image_folder(const DataConfig& config);

// Token files (tokens.h), read in place, so their size does not matter. data.path is a directory, whose .bin
// files have "train", or "val" or "test", in their names; or one file, whose end is the test split. Samples
// do not cross shards.
LoadedDataset load_tokens(const DataConfig& config, Split split, NodeMemory&);
Result<DatasetFacts> check_tokens(const DataConfig& config);

// Plain text, byte by byte: the files of a directory in name order are one row of bytes, each byte a token.
// Nothing is interpreted, so any file will do. The files are read in place. data.path is a file or a
// directory with files at any depth; those whose names begin with a dot are left out. The end of the row is
// the test split. tokenized_text.h reads text with a tokenizer.
LoadedDataset load_text(const DataConfig& config, Split split, NodeMemory& memory);
Result<DatasetFacts> check_text(const DataConfig& config);

// Rows of numbers with a label each, from CSV files (csv.h), in memory. data.path is a directory with
// train.csv and test.csv; or one file, whose last rows are the test split. The check looks at the first rows.
LoadedDataset load_csv(const DataConfig& config, Split split, NodeMemory& memory);
Result<DatasetFacts> check_csv(const DataConfig& config);

// A data set without files, the same on every machine: each class has a pattern of its own, and a sample is
// the pattern of its class under noise, computed on demand. For trying things out and for measuring; any
// network can learn it.
LoadedDataset load_synthetic(const DataConfig& config, Split split, NodeMemory&);
Result<DatasetFacts> check_synthetic(const DataConfig& config);  // nothing can be wrong

}  // namespace dtrun::worker
