// PNG and JPEG to bytes, the same ones wherever the decoders' libraries are the same: JPEGs by the slow
// integer transform, of which libjpeg-turbo's code for each processor gives the same bits. The file's first
// bytes tell the format, whatever its name is.
#pragma once

#include "proto/core/status.h"
#include "worker/data/images/resample.h"
#include "worker/data/node_memory.h"

namespace dtrun::worker {

bool is_png(Bytes beginning);
bool is_jpeg(Bytes beginning);

// `channels`: 3 for red, green and blue, 1 for grey, as Pillow's convert("RGB") and convert("L") make them:
// transparency is left out, CMYK is taken as Adobe writes it. 16 bits become the nearest 8. Neither an
// orientation (EXIF) nor a colour profile is looked at. EX_NOINPUT says what is wrong with the file.
Result<PixelImage> decode_image(Bytes file, int channels);

}  // namespace dtrun::worker
