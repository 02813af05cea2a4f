// Creates oneDNN's primitive descriptors. oneDNN 3 dropped the operation descriptors of 2.x; all code that
// depends on the version is here and in compat.cc.
#pragma once

#include <dnnl.hpp>

namespace dtrun::worker::onednn {

using Desc = dnnl::memory::desc;

// out = scale * left right + bias, or + out where `add`; only one of scale, bias and add is used. bias may be
// empty. The scratchpad is the caller's.
dnnl::matmul::primitive_desc matmul(const dnnl::engine&, const Desc& left, const Desc& right,
                                    const Desc& bias, const Desc& out, float scale, bool add);

}  // namespace dtrun::worker::onednn
