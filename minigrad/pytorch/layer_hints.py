"""Hints for PyTorch's layers and their functions that do not work here: what to write instead."""

NEW = "nothing is written in place here: x = "
PADDED = "is `nn.functional.pad(x, widths{})` in forward here"
OTHERS = {  # the layers of Keras, Paddle, Flax, MindSpore and haiku
    "Linear(in_features, out_features)": "Dense",
    "LayerNorm(width)": "LayerNormalization",
    "RMSNorm(width)": "RMSNormalization",
    "GroupNorm(groups, channels)": "GroupNormalization",
    "BatchNorm1d(width)": "BatchNorm BatchNormalization BatchNorm1D",
    "BatchNorm2d(channels)": "BatchNorm2D",
    "InstanceNorm2d(channels)": "InstanceNorm InstanceNorm2D",
    "Conv1d(channels, outputs, size)": "Conv1D",
    "Conv2d(channels, outputs, size)": "Conv Conv2D",
    "MaxPool1d(size)": "MaxPool1D MaxPooling1D",
    "MaxPool2d(size)": "MaxPool2D MaxPooling2D",
    "AvgPool2d(size)": "AvgPool2D AveragePooling2D",
    "AdaptiveAvgPool2d(1)` and `nn.Flatten()": "GlobalAveragePooling2D GlobalAvgPool2D",
    "ConvTranspose2d(channels, outputs, size)": "Conv2DTranspose Conv2dTranspose",
    "Upsample(scale_factor=2)": "UpSampling2D",
    "ZeroPad2d(padding)": "ZeroPadding2D",
    "LSTM(width, units, bidirectional=True)": "Bidirectional",
    "Embedding(words, width)": "Embed",
    "RNN(width, units)": "SimpleRNN SimpleCell VanillaRNN",
    "LSTM(width, units)": "OptimizedLSTMCell",
    "MultiheadAttention(width, heads)": "MultiHeadAttention",
}
FUNCTIONAL = {
    "upsample": "is `nn.functional.interpolate(x, size, scale_factor, mode)` here",
    "relu_": NEW + "`nn.functional.relu(x)`",
    "elu_": NEW + "`nn.functional.elu(x)`",
    "leaky_relu_": NEW + "`nn.functional.leaky_relu(x)`",
    "celu": "is `mg.maximum(x, 0) + alpha * mg.expm1(mg.minimum(x, 0) / alpha)` here",
    "softmin": "is `mg.softmax(-x, axis)` here",
    "tanhshrink": "is `x - mg.tanh(x)` here",
    "softshrink": "is `mg.sign(x) * mg.maximum(mg.abs(x) - lambd, 0)` here",
    "hardshrink": "is `mg.where(mg.abs(x) > lambd, x, 0)` here",
    "threshold": "is `mg.where(x > threshold, x, value)` here",
    "margin_ranking_loss": "is `mg.maximum(-y * (a - b) + margin, 0).mean()` here",
    "hinge_embedding_loss": "is `mg.where(y > 0, x, mg.maximum(margin - x, 0)).mean()` here",
    "soft_margin_loss": "is `nn.functional.softplus(-y * x).mean()` here",
    "multilabel_margin_loss": "is not available: `nn.functional.binary_cross_entropy_with_logits(x, labels)`",
    "multilabel_soft_margin_loss": "is `nn.functional.binary_cross_entropy_with_logits(x, labels)` here",
    "poisson_nll_loss": "is `(mg.exp(x) - y * x).mean()` here",
    "linear_cross_entropy": "is `nn.functional.cross_entropy(nn.functional.linear(x, weight, bias), labels)` here",
    "adaptive_max_pool2d": "is `nn.functional.max_pool2d(x, k)` here, with k = H / the rows wanted",
    "adaptive_avg_pool1d": "is `nn.functional.adaptive_avg_pool2d(x[:, :, None], (1, n))[:, :, 0]` here",
    "conv3d": "is not available: `nn.functional.conv2d(x, weight)` has two axes",
    "conv_transpose1d": "is `nn.functional.conv_transpose2d(x[:, :, None], w[:, :, None])[:, :, 0]` here",
    "unfold": "is not available: `nn.functional.conv2d(x, weight)` with rows of an identity as weights",
    "fold": "is not available: `nn.functional.conv_transpose2d(x, weight)` adds windows",
    "grid_sample": "is not available: `nn.functional.interpolate(x, size)` resizes",
    "affine_grid": "is not available: `nn.functional.interpolate(x, size)` resizes",
    "alpha_dropout": "is not available: `nn.functional.dropout(x, p, training)`",
    "feature_alpha_dropout": "is not available: `nn.functional.dropout(x, p, training)`",
    "embedding_bag": "is `nn.functional.embedding(indices, weight).mean(1)` here",
    "bilinear": 'is `mg.einsum("bi,oij,bj->bo", x, weight, y)` here',
    "multi_head_attention_forward": "is `nn.MultiheadAttention(embed_dim, num_heads)` here",
    "pairwise_distance": "is `(a - b + 1e-6).norm(dim=-1)` here",
    "cosine_embedding_loss": "is `mg.where(y > 0, 1 - s, mg.maximum(s - margin, 0)).mean()` here, with "
    "`s = nn.functional.cosine_similarity(a, b)`",
    "multi_margin_loss": "is `(mg.maximum(margin - x.take_along_axis(y[:, None], 1) + x, 0).sum(1) - margin).mean()"
    " / x.shape[1]` here",
    "triplet_margin_with_distance_loss": "is `mg.maximum(f(a, b) - f(a, c) + margin, 0).mean()` here",
    "lp_pool1d": "is `(nn.functional.avg_pool1d(x**p, k) * k) ** (1 / p)` here",
    "lp_pool2d": "is `(nn.functional.avg_pool2d(x**p, k) * k**2) ** (1 / p)` here",
    "max_unpool1d": "is `mg.zeros((n, c, steps)).scatter(2, index, x)` here",
    "max_unpool2d": "is `mg.zeros((n, c, h * w)).scatter(2, index.flatten(2), x.flatten(2)).reshape((n, c, h, w))`"
    " here",
    "channel_shuffle": "is `x.reshape((n, g, c // g, h, w)).permute_dims((0, 2, 1, 3, 4)).reshape((n, c, h, w))` here",
    "pixel_unshuffle": "is `x.reshape((n, c, h, r, w, r)).permute_dims((0, 1, 3, 5, 2, 4))"
    ".reshape((n, c * r * r, h, w))` here",
    "local_response_norm": "is `x / (k + alpha * s.reshape(x.shape)) ** beta` here, with, for an odd size, "
    "`s = nn.functional.avg_pool2d(mg.square(x).reshape((n, 1, c, -1)), (size, 1), 1, (size // 2, 0))`",
}
LAYERS = {
    "ParameterDict": "is `nn.ParameterList` here, or a `nn.Module` with `nn.Parameter` as attributes",
    "UninitializedParameter": "is not available: `nn.Parameter(mg.empty(shape))`",
    "Softmax2d": "is `nn.Softmax(dim=1)` here",
    "AlphaDropout": "is not available: `nn.Dropout(p)`",
    "Conv3d": "is not available: `nn.Conv2d(c, n, k)` has two axes",
    "ConvTranspose1d": "is `nn.ConvTranspose2d(c, n, (1, k))` of x[:, :, None] here",
    "ConvTranspose3d": "is not available: `nn.ConvTranspose2d(c, n, k)` has two axes",
    "MaxPool3d": "is not available; by k in all axes: `x.reshape((n, c, d // k, k, h // k, k, w // k, "
    "k)).max((3, 5, 7))`",
    "AdaptiveAvgPool1d": "is `nn.AdaptiveAvgPool2d((1, n))` of x[:, :, None] here",
    "AdaptiveMaxPool2d": "is `nn.MaxPool2d(k)` here, with k = H / the rows wanted",
    "AdaptiveMaxPool1d": "is `x.max(-1, keepdims=True)` in forward here, for one output",
    "UpsamplingNearest2d": "is `nn.Upsample(scale_factor=2)` here",
    "UpsamplingBilinear2d": 'is `nn.Upsample(scale_factor=2, mode="bilinear", align_corners=True)` here',
    "Unfold": "is not available: `nn.Conv2d(c, n, k)` reads windows",
    "Fold": "is not available: `nn.ConvTranspose2d(c, n, k)` adds windows",
    "BatchNorm3d": "is `nn.functional.batch_norm(x, mean, var)` here, which takes any number of axes",
    "InstanceNorm3d": "is `nn.functional.instance_norm(x)` here, which takes any number of axes",
    "Bilinear": 'is `mg.einsum("bi,oij,bj->bo", x, self.weight, y)` in forward here',
    "EmbeddingBag": "is `nn.Embedding(n, d)` and the mean over axis 1 here",
    "DataParallel": "is `mg.distributed.DataParallel(model)` here, with one process for each GPU",
    "parallel": "is not available: `mg.distributed.DataParallel(model)`",
    "MultiLabelSoftMarginLoss": "is `nn.BCEWithLogitsLoss()` here",
    "LinearCrossEntropyLoss": "is a `nn.Linear(in_features, classes)` and `nn.CrossEntropyLoss()` here",
    "RReLU": "is not available: `nn.LeakyReLU(11 / 48)` is what it computes in evaluation",
    "FeatureAlphaDropout": "is not available: `nn.Dropout2d(p)` drops channels",
    "Dropout3d": "is `x * nn.functional.dropout(mg.ones((n, c, 1, 1, 1)), p, self.training)` in forward here",
    "AvgPool3d": "is not available; by k in all axes: `x.reshape((n, c, d // k, k, h // k, k, w // k, "
    "k)).mean((3, 5, 7))`",
    "AdaptiveAvgPool3d": "is `x.mean((-3, -2, -1), keepdims=True)` in forward here, for one output",
    "AdaptiveMaxPool3d": "is `x.max((-3, -2, -1), keepdims=True)` in forward here, for one output",
    "LPPool3d": "is not available; by k: `(x**p).reshape((n, c, d // k, k, h // k, k, w // k, "
    "k)).sum((3, 5, 7)) ** (1 / p)`",
    "FractionalMaxPool2d": "is not available: `nn.MaxPool2d(k)` has windows of one size",
    "FractionalMaxPool3d": "is not available: `nn.MaxPool2d(k)` has windows of one size, in two axes",
    "MaxUnpool3d": "is not available: `nn.Upsample(scale_factor=2)` has two axes",
    "AdaptiveLogSoftmaxWithLoss": "is not available: `nn.Linear(in_features, classes)` and "
    "`nn.CrossEntropyLoss()`, for all classes",
    "LinearCrossEntropyOptions": "is not needed here: a `nn.Linear(in_features, classes)` and `nn.CrossEntropyLoss()`",
    "MultiLabelMarginLoss": "is not available: `nn.BCEWithLogitsLoss()` takes 1 for each label of a "
    "sample and 0 for the others",
    "NLLLoss2d": "is `nn.NLLLoss()` here",
    "Container": "is `nn.Module` here",
    "RNNBase": "is `nn.RNN`, `nn.LSTM` or `nn.GRU` here",
    "RNNCellBase": "is `nn.RNNCell`, `nn.LSTMCell` or `nn.GRUCell` here",
    "UninitializedBuffer": "is not available: `nn.Buffer(mg.empty(shape))`",
    **{f"CircularPad{axes}d": PADDED.format(', "circular"') for axes in (1, 2, 3)},
    "ReflectionPad3d": PADDED.format(', "reflect"'),
    "ReplicationPad3d": PADDED.format(', "replicate"'),
    "ConstantPad3d": PADDED.format(', "constant", value'),
    "ZeroPad3d": PADDED.format(""),
    **{
        f"Lazy{name}": f"is `nn.{name}({sizes})` here; `nn.summary` shows the sizes"
        for sizes, names in {
            "in_features, out_features": "Linear",
            "in_channels, out_channels, k": "Conv1d Conv2d ConvTranspose2d",
            "num_features": "BatchNorm1d BatchNorm2d InstanceNorm1d InstanceNorm2d",
        }.items()
        for name in names.split()
    },
    **{
        name: f"is `nn.{ours}` here, with other defaults: see docs/reference/tutorials.md and `mg.convert`"
        for ours, names in OTHERS.items()
        for name in names.split()
    },
}
# The modules whose advice is that of a function.
LIKE_FUNCTIONS = {
    "CELU": "celu", "ChannelShuffle": "channel_shuffle", "CosineEmbeddingLoss": "cosine_embedding_loss",
    "Hardshrink": "hardshrink", "HingeEmbeddingLoss": "hinge_embedding_loss", "LPPool1d": "lp_pool1d",
    "LPPool2d": "lp_pool2d", "LocalResponseNorm": "local_response_norm", "MarginRankingLoss": "margin_ranking_loss",
    "MaxUnpool1d": "max_unpool1d", "MaxUnpool2d": "max_unpool2d", "MultiMarginLoss": "multi_margin_loss",
    "PairwiseDistance": "pairwise_distance", "PixelUnshuffle": "pixel_unshuffle", "PoissonNLLLoss": "poisson_nll_loss",
    "SoftMarginLoss": "soft_margin_loss", "Softmin": "softmin", "Softshrink": "softshrink", "Tanhshrink": "tanhshrink",
    "Threshold": "threshold", "TripletMarginWithDistanceLoss": "triplet_margin_with_distance_loss",
}  # fmt: skip
LAYERS |= {
    name: FUNCTIONAL[function].replace("` here", "` in forward here") for name, function in LIKE_FUNCTIONS.items()
}
LAYERS["CrossMapLRN2d"] = (
    LAYERS["LocalResponseNorm"] + "; PyTorch's (2.13) also counts the first channel in all later windows"
)
LAYERS |= {
    f"Lazy{name}": LAYERS[name]
    for name in ("Conv3d", "ConvTranspose1d", "ConvTranspose3d", "BatchNorm3d", "InstanceNorm3d")
}
