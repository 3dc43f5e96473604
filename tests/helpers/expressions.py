"""Expressions that PyTorch's users type: those that work, and those whose errors say what to write instead."""

import re

import numpy as np
from peers import torch

import minigrad as mg
from minigrad import data, nn, optim

# `torch` is minigrad here. a, b (3, 4), x (2, 3, 4), m (4, 3), v, w (4,) are floats, p probabilities, i integers, k
# indices of rows, g indices along axis 1, and q a mask.
WORKS = """
    a.view(4, 3)                a.view(-1)                  a.view((2, 6))              a.view_as(m)
    a.reshape_as(m)             a.unsqueeze(0)              a.unsqueeze(dim=-1)         x.flatten()
    x.flatten(1)                x.flatten(start_dim=0, end_dim=1)                       x.ravel()
    a.unflatten(1, (2, 2))      x.permute(2, 0, 1)          x.permute((2, 0, 1))        a.t()
    v.t()                       x.swapaxes(0, 1)            x.swapdims(0, 2)            x.movedim(0, 2)
    v.expand(3, 4)              v.expand(3, -1)             v.unsqueeze(0).expand(3, 4)
    v.expand_as(a)              v.tile(2, 2)                a.tile((2, 1))              a.repeat_interleave(2, dim=0)
    a.repeat_interleave(2)      a.roll(1, 0)                a.roll(shifts=1, dims=1)    a.unbind(0)
    a.unbind(dim=1)             a.chunk(2)                  a[:0].chunk(2)              a[:0].chunk(3, dim=1)
    a.chunk(3, dim=1)           a.narrow(1, 1, 2)           a.select(0, 1)              a.tril()
    a.triu(1)                   a.triu(diagonal=1)          a.gather(1, g)              a.gather(1, g[:2])
    a.index_select(0, k)        a.index_select(dim=1, index=k)                          a.masked_fill(q, 0.0)
    a.masked_fill(q == 0, -1e9)                             a.masked_select(q)          a.topk(2)
    a.topk(2, dim=0)            a.topk(2, largest=False)    a.clamp(-0.5, 0.5)          a.clamp(min=0)
    a.clamp(max=0.3)            a.clamp_min(0)              a.clamp_max(0.1)            a.add(b)
    a.add(b, alpha=2)           a.sub(b)                    a.sub(b, alpha=0.5)         a.mul(b)
    a.mul(2)                    a.div(b)                    a.div(b, rounding_mode="floor")
    a.div(b, rounding_mode="trunc")                         a.neg()                     p.pow(2)
    p.pow(0.5)                  a.remainder(2)              a.eq(b)                     a.ne(b)
    a.gt(0)                     a.ge(b)                     a.lt(0)                     a.le(0)
    q.logical_not()             q.logical_and(q)            q.logical_or(q)             a.matmul(m)
    a.mm(m)                     x.bmm(x.permute(0, 2, 1))   a.mv(v)                     v.dot(w)
    v.outer(w)                  a.lerp(b, 0.3)              p.logit()                   a.sgn()
    a.erfc()                    a.amax(1)                   a.amax(dim=1, keepdim=True)
    a.amax()                    a.amin(0)                   a.cumsum(1)                 a.cumsum(dim=0)
    a.norm()                    a.norm(dim=1)               a.norm(1)                   a.norm(p=2, dim=1, keepdim=True)
    a.norm(p=3)                 a.norm(float("inf"))        i.unique()                  a.isclose(b)
    a.allclose(a)               a.clone()                   a.cpu()                     a.float()
    a.double()                  a.long()                    a.int()                     a.bool()
    a.type_as(i)                a.type(torch.float64)       a.is_cuda is not None       a.is_floating_point()
    i.is_floating_point()       a.numel()                   a.nelement()                a.element_size()
    a.dim()                     a.ndimension()              a.new_tensor([1, 2])        a.new_zeros(2, 3)
    a.new_zeros((2, 3))         a.new_ones(2)               a.new_full((2,), 3.0)
    a.new_empty(2, 3).shape == (2, 3)                       a.data                      a.detach()
    a.contiguous()              a.clone().add_(b)           a.clone().add_(b, alpha=2)  a.clone().add_(1)
    a.clone().sub_(b)           a.clone().mul_(b)           a.clone().div_(2)           p.clone().pow_(2)
    a.clone().neg_()            a.clone().clamp_(min=0)     a.clone().masked_fill_(q, 2.0)
    a.clone().addcmul_(b, b, value=2)                       a.clone().addcdiv_(b, p, value=2)
    a.clone().lerp_(b, 0.5)     a.clone().zero_()           a.clone().fill_(2)          a.clone().copy_(b)
    a.sum(dim=1)                a.sum(dim=1, keepdim=True)  a.sum(1, True)              a.sum(-1, keepdim=True)
    a.mean(dim=0)               a.mean(dim=(0, 1))          a.mean(1, keepdim=True)     a.prod(dim=1)
    a.argmax(dim=1)             a.argmax(1)                 a.argmin(dim=0, keepdim=True)
    a.std(dim=0, unbiased=False)                            a.var(dim=0, unbiased=True)
    a.std(dim=1, correction=1, keepdim=True)                a.std(1, unbiased=False)    q.any(dim=1)
    q.all(dim=0)                a.logsumexp(dim=1)          a.logsumexp(1, keepdim=True)
    a.softmax(dim=-1)           a.softmax(1)                a.log_softmax(dim=1)        a.argsort(dim=1)
    a.argsort(dim=0, descending=True)                       a.flip(0)                   a.flip(0, 1)
    a.flip(dims=(0,))           a.flip([1])                 a.unsqueeze(0).squeeze(0)   a.unsqueeze(0).squeeze(dim=0)
    a.squeeze()                 a.relu()                    a.sigmoid()                 a.tanh()
    a.exp()                     p.log()                     p.sqrt()                    a.abs()
    p.rsqrt()                   a.square()                  a.round()                   a.reciprocal()
    a.isnan()                   a[0].tolist()               a[q]                        a[:, 1:3]
    a[..., None]                a[k]                        x.size()                    x.size(0)
    x.size(-1)                  x.size(dim=1)               x.view(x.size(0), -1)       a.new_zeros(x.size())
    torch.zeros(x.size())       x.size()[1:]                a.T                         x.mT
    a.shape[0]                  a.ndim                      a @ m                       a ** 2
    torch.cat([a, b])           torch.cat([a, b], dim=1)    torch.cat((a, b), -1)       torch.concat([a, b], dim=1)
    torch.concatenate([a, b])   torch.stack([a, b], dim=1)  torch.stack([a, b])         torch.hstack([a, b])
    torch.vstack([v, w])        torch.hstack([v, w])        torch.unsqueeze(a, 1)       torch.squeeze(a[None], 0)
    torch.flatten(x, 1)         torch.permute(x, (2, 0, 1))                             torch.reshape(a, (4, 3))
    torch.t(a)                  torch.swapaxes(x, 0, 1)     torch.movedim(x, 0, 1)      torch.chunk(a, 2, dim=1)
    torch.unbind(a)             torch.gather(a, 1, g)       torch.index_select(a, 0, k)
    torch.masked_select(a, q)   torch.where(q, a, b)        torch.where(q)
    torch.concatenate([a, b], axis=1)                       torch.cat([a, b], axis=1)   torch.cumsum(a, axis=1)
    a.cumsum(axis=1)            a.cumprod(axis=1)           a.amax(axis=1, keepdims=True)
    a.amin(axis=0)              a.diff(axis=0)              a.count_nonzero(axis=0)
    a.quantile(0.5, axis=0, keepdims=True)                  torch.quantile(a, q=0.3)    a.unsqueeze(axis=0)
    a.roll(shifts=1, dims=0)    a.chunk(2, axis=1)          a.unbind(axis=1)            a.gather(axis=1, index=g)
    a.index_select(axis=0, index=k)                         a.topk(2, axis=0)           a.select(axis=1, index=0)
    torch.topk(a, 2)            torch.clamp(a, 0, 1)        torch.clamp(a, min=0)       torch.cumsum(a, 0)
    torch.cumsum(a, dim=1)      torch.pow(p, 2)             torch.norm(a)               torch.norm(a, dim=1)
    torch.add(a, b)             torch.sub(a, b)             torch.mul(a, b)             torch.div(a, b)
    torch.neg(a)                torch.eq(a, b)              torch.ne(a, b)              torch.gt(a, b)
    torch.ge(a, b)              torch.lt(a, b)              torch.le(a, b)              torch.mm(a, m)
    torch.bmm(x, x.mT)          torch.mv(a, v)              torch.dot(v, w)             torch.outer(v, w)
    torch.ger(v, w)             torch.matmul(a, m)          torch.einsum("ij,jk->ik", a, m)
    torch.sum(a, dim=1)         torch.mean(a, dim=1, keepdim=True)                      torch.sum(a, 1, True)
    torch.argmax(a, dim=1)      torch.amax(a, 1)            torch.amin(a, dim=0)        torch.softmax(a, dim=1)
    torch.log_softmax(a, dim=1)                             torch.logsumexp(a, dim=1)   torch.sigmoid(a)
    torch.tanh(a)               torch.relu(a)               torch.exp(a)                torch.log(p)
    torch.sqrt(p)               torch.abs(a)                torch.sgn(a)                torch.sign(a)
    torch.lerp(a, b, 0.5)       torch.logit(p)              torch.erfc(a)               torch.isclose(a, b)
    torch.allclose(a, b)        torch.maximum(a, b)         torch.minimum(a, b)         torch.all(q, dim=1)
    torch.any(q, dim=1)         torch.flip(a, dims=(0,))    torch.flip(a, [1])          torch.roll(a, 1, 0)
    torch.roll(a, shifts=1, dims=0)                         torch.tile(a, (2, 1))
    torch.repeat_interleave(a, 2, dim=0)                    torch.tril(a)               torch.triu(a, diagonal=1)
    torch.triu(a, 1)            torch.narrow(a, 1, 0, 2)    torch.select(a, 0, 1)       torch.unflatten(a, 1, (2, 2))
    torch.clone(a)              torch.numel(a)              torch.is_tensor(a)          torch.is_floating_point(a)
    i.unique(return_counts=True)                           torch.unique(i, True, True, True)
    torch.unique(i)             torch.ravel(a)              a.cumprod(1)                torch.cumprod(a, dim=0)
    a.diff()                    a.diff(2, 0, v[None], a)    torch.diff(a, dim=0)        a.count_nonzero()
    a.count_nonzero(0)          torch.count_nonzero(a, dim=1)                           a.quantile(0.3)
    a.quantile(0.5, 1, True)    torch.quantile(a, 0.2, dim=0)                           a.kron(m)
    a.hypot(b)                  torch.hypot(a, b)           a.logaddexp(b)              torch.logaddexp(a, b)
    a.copysign(b)               torch.copysign(a, -1.0)     a.nextafter(b) > a          torch.nextafter(a, b) > a
    a.nan_to_num()              torch.nan_to_num(a, nan=1.0)                            a.trunc()
    torch.trunc(a)              a.signbit()                 torch.signbit(a)            v.diag()
    a.diag(1)                   torch.diag(a, diagonal=-1)  x.diagonal(0, 1, 2)
    torch.diagonal(x, dim1=0, dim2=2)                       a.trace()                   torch.trace(a)
    torch.kron(v, w)            a.scatter_add(1, g, b[:, :2])
    torch.scatter_add(a, 1, g, b[:, :2])                    torch.linalg.norm(a)
    torch.linalg.norm(a, dim=1, keepdim=True)               torch.linalg.cross(a[:, :3], b[:, 1:])
    torch.linalg.matrix_power(a[:, :3], 3)                  torch.logical_not(q)        torch.square(a)
    torch.zeros(2, 3)           torch.zeros((2, 3))         torch.zeros(2)              torch.ones(2, 3)
    torch.ones(2, 3, dtype=torch.long)                      torch.ones(2, requires_grad=True)
    torch.empty(2, 3).shape == (2, 3)                       torch.zeros([2, 3])         torch.full((2, 3), 1.5)
    torch.zeros_like(a)         torch.ones_like(i)          torch.full_like(a, 2)       torch.arange(5)
    torch.arange(1, 7, 2)       torch.arange(0, 1, 0.25)    torch.linspace(0, 1, 5)     torch.linspace(0, 1, steps=5)
    torch.eye(3)                torch.tensor([1.0, 2.0])    torch.tensor([1, 2], dtype=torch.float)
    torch.as_tensor([1.0, 2.0])                             torch.from_numpy(np.ones(3))
    torch.tensor(3.0).item()    torch.Tensor([1.0, 2.0])    torch.rand(2, 3).shape == (2, 3)
    torch.rand((2, 3)).dtype == torch.float                 torch.rand(4, requires_grad=True).shape == (4,)
    torch.randn(2, 3).shape == (2, 3)                       torch.randn(5).dtype == torch.float32
    torch.randn(2, 3, dtype=torch.double).dtype == torch.float64
    torch.randn((2, 3), requires_grad=True).requires_grad   torch.randint(0, 10, (3,)).shape == (3,)
    torch.randint(10, (3,)).dtype == torch.long             torch.randint(low=0, high=3, size=(2, 2)).shape == (2, 2)
    torch.rand_like(a).shape == a.shape                     torch.randn_like(a).dtype == a.dtype
    torch.sum(torch.randperm(5))                            torch.normal(0.0, 1.0, (2, 3)).shape == (2, 3)
    a.split_with_sizes([1, 2])  a.split_with_sizes((3, 1), dim=-1)                      a.split_with_sizes([0, 4], 1)
    torch.split_with_sizes(a, [1, 3], 1)                    a.argwhere()                torch.argwhere(q)
    a.equal(b)                  a.equal(a)                  a.equal(v)                  i.masked_fill(q, 0.0)
    q.masked_fill(q, 0)         a.index_select(1, k[0])     F.cosine_similarity(a, v, 0)
    F.cosine_similarity(x, a)   F.cosine_similarity(a, b[:1], 0)
    torch.bernoulli(p).shape == p.shape                     torch.multinomial(p, 2).shape == (3, 2)
    torch.multinomial(p[0], 9, replacement=True).shape == (9,)                          torch.bernoulli(torch.ones(3))
    torch.multinomial(torch.tensor([0.0, 1.0]), 1)          a.clone().uniform_(0, 1).shape == (3, 4)
    a.clone().normal_(0, 0.02).shape == (3, 4)              torch.is_grad_enabled()
    torch.get_default_dtype() == torch.float32              torch.set_default_dtype(torch.float32)
    torch.manual_seed(0) is not 0                           torch.autograd.grad(a.sum(), [a])[0]
    torch.autograd.grad(a.sum(), (a, ))                     torch.autograd.grad(a.sum(), a)
    torch.autograd.grad(a * a, a, torch.ones_like(a))[0]
    torch.autograd.grad(outputs=a * b, inputs=[a, b], grad_outputs=b, only_inputs=True)
    torch.autograd.grad(a.sum(), [a, b], allow_unused=True)
    torch.autograd.grad(a.sum(), [a, b], materialize_grads=True)
    torch.autograd.grad(torch.autograd.grad((a ** 3).sum(), a, create_graph=True)[0].sum(), a)[0]
    torch.utils.data.Subset([1, 2, 3], [0])[0]              len(torch.utils.data.TensorDataset(a.detach()))
    torch.set_grad_enabled(False)(lambda: (a * 2).requires_grad)()
    torch.no_grad()(torch.set_grad_enabled(True)(lambda: (a * 2).requires_grad))()      a.clone().copy_(b.double())
    torch.cuda.is_available() is not None                   str(torch.device("cpu"))    torch.float32 == torch.float
    torch.long == torch.int64   torch.double == torch.float64                           torch.int == torch.int32
    torch.zeros(2, device=torch.device("cpu"))              a.to(torch.float64)         a.to(torch.device("cpu"))
    a.to(dtype=torch.double)    a.to("cpu", non_blocking=True)
    nn.Linear(1, 1).to("cpu", non_blocking=True).in_features                            torch.zeros(2).to(a.device)
    a.new_zeros(a.shape)        a.requires_grad_().requires_grad                        a.is_leaf
    F.relu(a)                   F.relu(a * 1, inplace=True)                             F.leaky_relu(a, 0.2)
    F.leaky_relu(a * 1, 0.2, inplace=True)                  F.elu(a)                    F.gelu(a)
    F.silu(a)                   F.softplus(a)               F.sigmoid(a)                F.tanh(a)
    F.hardsigmoid(a)            F.softmax(a, dim=1)         F.glu(a)                    F.glu(x, dim=-1)
    F.logsigmoid(a)             F.prelu(a, w)               F.hardswish(a * 1, inplace=True)
    F.mish(a)                   F.selu(a)                   F.normalize(a)              F.normalize(a, p=1, dim=0)
    F.gelu(a, approximate="tanh")                           F.softplus(a, beta=2)       F.softplus(a, 3, 1)
    F.relu(a * 1, True)         F.leaky_relu(a * 1, 0.2, True)                          F.elu(a * 1, 1.0, True)
    F.tanh(input=a)             F.linear(input=a, weight=b)
    F.embedding(input=i % 3, weight=a)                      F.conv1d(input=x, weight=x.new_ones((2, 3, 1)))
    F.conv2d(input=x, weight=x.new_ones((5, 2, 1, 1)))      F.layer_norm(input=a, normalized_shape=a.shape)
    F.rms_norm(input=a, normalized_shape=a.shape)           F.group_norm(input=x, num_groups=1)
    F.instance_norm(input=x)    F.max_pool2d(input=x, kernel_size=2)
    F.interpolate(input=x, scale_factor=2)                  F.avg_pool2d(input=x, kernel_size=2)
    F.adaptive_avg_pool2d(input=x, output_size=1)           F.conv_transpose2d(input=x, weight=x.new_ones((2, 2, 1, 1)))
    F.batch_norm(input=a, running_mean=None, running_var=None, training=True)
    nn.MaxPool2d(2, return_indices=True)(x)                 nn.Mish()(a)
    F.max_pool2d(x, 2, return_indices=True)                 nn.LogSigmoid()(a)
    F.max_pool2d(x, 2, 2, 1, 1, True, True)                 nn.Hardswish()(a)           nn.GLU(dim=1)(a)
    fixed(nn.PReLU(4, init=0.5))(a)                         nn.SELU(inplace=True)(a * 1)
    nn.GELU(approximate="tanh")(a)                          nn.Softplus(beta=2, threshold=1)(a)
    nn.MaxPool2d(2, 1, 0, 1, True)(x)                       F.softmax(a, dim=-1)        F.log_softmax(a, dim=1)
    F.one_hot(k, 4)             F.one_hot(k, num_classes=3)                             F.linear(a, b)
    F.layer_norm(a, (4,))       F.mse_loss(a, b)            F.mse_loss(a, b, reduction="sum")
    F.l1_loss(a, b)             F.smooth_l1_loss(a, b)      F.huber_loss(a, b)          F.huber_loss(a, b, delta=0.5)
    F.huber_loss(a, b, reduction="none", delta=2.0)         F.kl_div(a, p)
    F.kl_div(a, p, reduction="batchmean")                   F.kl_div(a, b, log_target=True)
    F.kl_div(a, p, reduction="sum")                         F.kl_div(a, (p * (p > 0.5)).detach(), reduction="none")
    F.cosine_similarity(a, b)   F.cosine_similarity(a, b, dim=0)
    F.cosine_similarity(a.detach(), b.detach(), dim=-1, eps=2.0)                        F.cross_entropy(a, i[:, 0])
    F.cross_entropy(a, i[:, 0], label_smoothing=0.1)        F.mse_loss(input=a, target=b)
    F.l1_loss(a, target=b)      F.smooth_l1_loss(input=a, target=b)
    F.huber_loss(input=a, target=b, delta=2.0)              F.kl_div(input=a, target=p)
    F.binary_cross_entropy(input=p, target=p.detach().round())
    F.binary_cross_entropy_with_logits(input=a, target=p.detach().round())              nn.MSELoss()(input=a, target=b)
    nn.CrossEntropyLoss()(a, target=i[:, 0])                nn.KLDivLoss(reduction="sum")(target=p, input=a)
    nn.HuberLoss()(input=a, target=b)                       F.cross_entropy(input=a, target=i[:, 0])
    F.nll_loss(F.log_softmax(a, dim=1), i[:, 0])            F.binary_cross_entropy(p, p.detach().round())
    F.binary_cross_entropy_with_logits(a, p.detach().round())
    F.scaled_dot_product_attention(x, x, x, is_causal=True)
    F.dropout(a, 0.5, training=False)                       F.dropout(a, p=0.0)
    F.embedding(i, a[:, :2].repeat_interleave(2, dim=0))    F.pad(a, (1, 2))            F.pad(a, (1, 1, 2, 0))
    F.pad(a, (1, 1), value=3.0)                             F.pad(a, (-1, 2))           F.pad(x, (1, 2), mode="reflect")
    F.pad(x, (2, 1), mode="replicate")                      F.pad(x, (2, 1), mode="circular")
    F.pad(a, (0, 1), "constant", 0)                         F.conv1d(x, x[:, :, :2])    F.conv1d(x, x, padding=1)
    F.conv1d(x, x[:, :, :3], stride=2)                      F.conv1d(x, x[:, :, :3], padding="same")
    F.conv1d(x, x[:, :, :2], v[:2], dilation=2)             F.conv1d(x[0], x[:, :, :2])
    F.conv2d(x[None], x[None])  F.max_pool2d(x, 2)          F.conv_transpose2d(x[:, None], x[:1, None], stride=2)
    F.interpolate(x, scale_factor=2)                        F.interpolate(x, size=7)
    F.interpolate(x[None], scale_factor=2)                  F.interpolate(x[None], size=(2, 5), mode="nearest")
    F.interpolate(x, scale_factor=1.7)                      F.interpolate(x, scale_factor=0.6)
    F.interpolate(x[None], scale_factor=2, mode="bilinear")
    F.interpolate(x[None], size=(5, 3), mode="bilinear", align_corners=False)
    F.interpolate(x[None], size=(5, 7), mode="bilinear", align_corners=True)
    F.interpolate(x, size=1, mode="linear", align_corners=True)
    F.interpolate(x[None], scale_factor=(1.5, 2.3), mode="bilinear")                    F.adaptive_avg_pool2d(x, 1)
    F.avg_pool2d(x, 2)          nn.ReLU()(a)                nn.ReLU(inplace=True)(a * 1)
    nn.LeakyReLU(0.2, inplace=True)(a * 1)                  nn.ELU(inplace=True)(a * 1)
    nn.SiLU(inplace=True)(a * 1)                            nn.GELU()(a)                nn.Softmax(dim=1)(a)
    nn.Softmax(dim=-1)(a)       nn.LogSoftmax(dim=1)(a)     nn.Tanh()(a)                nn.Sigmoid()(a)
    nn.Softplus()(a)            nn.Hardsigmoid(inplace=True)(a * 1)
    nn.Dropout(0.5, inplace=True).eval()(a)                 nn.Identity()(a)            nn.Flatten()(x)
    nn.MSELoss()(a, b)          nn.L1Loss()(a, b)           nn.HuberLoss(delta=0.5)(a, b)
    nn.HuberLoss()(a, b)        nn.SmoothL1Loss()(a, b)     nn.KLDivLoss(reduction="batchmean")(a, p)
    nn.CosineSimilarity(dim=1)(a, b)                        nn.CrossEntropyLoss()(a, i[:, 0])
    nn.NLLLoss()(a, i[:, 0])    nn.BCEWithLogitsLoss()(a, p.detach().round())           nn.Upsample(scale_factor=2)(x)
    nn.Upsample(size=(3, 3), mode="bilinear")(x[None])      fixed(nn.Linear(4, 2))(a)   fixed(nn.Conv1d(3, 4, 2))(x)
    fixed(nn.Conv1d(3, 6, 3, stride=2, padding=1, groups=3))(x)
    fixed(nn.Conv1d(3, 2, 3, padding="same", bias=False))(x)
    fixed(nn.Conv2d(2, 3, 2))(x[None])
    fixed(nn.ConvTranspose2d(2, 3, 4, stride=2, padding=1))(x[None])
    fixed(nn.ConvTranspose2d(2, 4, 3, 2, 1, 1, groups=2, bias=False))(x[None])
    fixed(nn.Sequential(nn.Linear(4, 3), nn.ReLU(inplace=True), nn.Linear(3, 2)))(a)    fixed(nn.BatchNorm1d(4))(a)
    fixed(nn.LayerNorm(4))(a)   fixed(nn.Embedding(5, 3))(i)
    fixed(nn.LSTM(4, 3, batch_first=True))(x)               fixed(nn.GRU(4, 3))(x)      fixed(nn.RNNCell(4, 3))(a)
    fixed(nn.LSTMCell(4, 3))(a)                             fixed(nn.GRUCell(4, 3))(a)
    fixed(nn.ModuleDict({"one": nn.Linear(4, 2)}))["one"](a)
    list(nn.ModuleDict({"one": nn.ReLU(), "two": nn.Tanh()}).keys())
    "one" in nn.ModuleDict({"one": nn.ReLU()})              len(nn.ModuleDict([["one", nn.ReLU()]]))
    [name for name, _ in nn.ModuleDict({"one": nn.Linear(1, 1)}).named_parameters()]    len(nn.ParameterList([a, b]))
    nn.ParameterList([a])[0]    [name for name, _ in nn.ParameterList([a, b]).named_parameters()]
    [p.shape == (2, 4) for p in nn.Linear(4, 2).double().cpu().float().parameters()]
    nn.Linear(2, 2).double().weight.dtype == torch.float64  list(fixed(nn.ConvTranspose2d(1, 2, 3)).state_dict())
    nn.Parameter(a).requires_grad                           nn.Module().add_module("one", nn.ReLU())
    nn.utils.rnn.pad_sequence([v, w[:2]])                   nn.utils.rnn.pad_sequence([v[:1], w], batch_first=True)
    nn.utils.rnn.pad_sequence([a[:2], b], padding_value=-1.0)
    nn.utils.rnn.pad_sequence([a[:2], b], batch_first=True, padding_side="left")
    nn.utils.parameters_to_vector([a, b])                   nn.utils.rnn.pad_sequence((a, m[:, :1].expand(4, 4)))
    trained(lambda q: optim.SGD(q, lr=0.1, momentum=0.9))
    trained(lambda q: optim.SGD(q, lr=0.1, weight_decay=0.1, nesterov=True, momentum=0.5))
    trained(lambda q: optim.Adam(q, lr=0.1))                trained(lambda q: optim.Adam(q, betas=(0.5, 0.999)))
    trained(lambda q: optim.AdamW(q, weight_decay=0.1))     trained(lambda q: optim.RMSprop(q, lr=0.01))
    trained(lambda q: optim.Adagrad(q, lr=0.1, foreach=True, fused=False))
    trained(lambda q: optim.Adam(q, foreach=True, weight_decay=0.1, decoupled_weight_decay=True))
    trained(lambda q: optim.SGD(q, foreach=False, fused=None))
    trained(lambda q: optim.NAdam(q, foreach=True))         trained(lambda q: optim.RAdam(q, capturable=False))
    trained(lambda q: optim.Adadelta(q, lr=0.5))            trained(lambda q: optim.Adafactor(q, foreach=False))
    trained(lambda q: optim.RMSprop(q, foreach=True))       trained(lambda q: optim.AdamW(q, foreach=True, fused=False))
    rates(lambda o: optim.lr_scheduler.StepLR(o, step_size=2, gamma=0.1))
    rates(lambda o: optim.lr_scheduler.MultiStepLR(o, milestones=[1, 3]))
    rates(lambda o: optim.lr_scheduler.ExponentialLR(o, 0.9))
    rates(lambda o: optim.lr_scheduler.CosineAnnealingLR(o, T_max=4))
    rates(lambda o: optim.lr_scheduler.CosineAnnealingWarmRestarts(o, T_0=2, T_mult=2))
    rates(lambda o: optim.lr_scheduler.LambdaLR(o, lambda epoch: 0.5**epoch))
    rates(lambda o: optim.lr_scheduler.LinearLR(o))         rates(lambda o: optim.lr_scheduler.ConstantLR(o))
    rates(lambda o: optim.lr_scheduler.PolynomialLR(o))
    rates(lambda o: optim.lr_scheduler.CyclicLR(o, 0.1, 1.0, 3, cycle_momentum=False))
    rates(lambda o: optim.lr_scheduler.MultiplicativeLR(o, lambda epoch: 0.5))
    rates(lambda o: optim.swa_utils.SWALR(o, 0.05))
    rates(lambda o: optim.lr_scheduler.OneCycleLR(o, 0.1, total_steps=9))               len(data.TensorDataset(a, i))
    data.TensorDataset(a.detach(), i)[1]                    data.TensorDataset(a, i).tensors[1]
    len(data.Subset([1, 2, 3], [0, 2]))                     data.Subset([1, 2, 3], [0, 2])[1]
    [len(d) for d in data.random_split(range(10), [7, 3])]
    [len(d) for d in data.random_split(range(11), [0.5, 0.3, 0.2])]
    sorted(n for d in data.random_split(range(6), (2, 4)) for n in d)
    len(data.DataLoader(data.TensorDataset(a), batch_size=2, shuffle=True, num_workers=0, pin_memory=False))
    [tuple(x) for x in data.DataLoader(data.TensorDataset(a.detach(), i), batch_size=2)]
    list(data.DataLoader([3, 1, 2], batch_size=2, collate_fn=sum))
    list(data.DataLoader(data.Subset(data.TensorDataset(i), [2, 0]), batch_size=2, drop_last=True))[0][0]
    a.scatter(1, b.argsort(1), b)                           a.scatter(1, g[:2], 2.0)    torch.scatter(a, 0, k[None], b[:1, :2])
    a.scatter(dim=0, index=g % 3, value=1.5)                a.clone().scatter_(1, b.argsort(1)[:, :2], b[:, :2])
    a.clone().scatter_add_(1, g, b[:, :2])
    a.index_add(0, k, b[:2])    a.index_add(1, k, b[:, :2], alpha=-2)                   torch.index_add(a, 0, k, b[1:])
    a.clone().index_add_(0, k, b[1:])                       F.relu6(a * 5)              F.relu6(input=a, inplace=False)
    F.hardtanh(a, -0.5, 0.7)    F.hardtanh(a, min_val=0.0, max_val=1.0, inplace=False)  F.softsign(a)
    F.max_pool1d(x, 2)          F.max_pool1d(x, 2, return_indices=True)                 F.avg_pool1d(x, 3, 1, 1)
    F.pixel_shuffle(x.reshape(4, 2, 3), 2)                  F.pixel_shuffle(input=x.reshape(4, 2, 3), upscale_factor=2)
    F.dropout1d(x, 0.0)         F.dropout2d(x[None], training=False)                    F.gumbel_softmax(a, hard=True).sum(1)
    F.gumbel_softmax(a, tau=0.5, dim=0).sum(0)              F.triplet_margin_loss(a, b, b * 2, swap=True, p=1)
    F.gaussian_nll_loss(a, b, p)                            F.gaussian_nll_loss(a, b, p[:, 0], full=True)
    F.gaussian_nll_loss(input=a, target=b, var=0.5, reduction="sum")                    nn.ReLU6()(a)
    nn.Hardtanh(-0.2, 0.3)(a)   nn.Softsign()(a)            nn.MaxPool1d(2)(x)          nn.AvgPool1d(3, stride=1, padding=1)(x)
    nn.Unflatten(1, (2, 2))(a)  nn.Unflatten(-1, (-1, 2))(a)                            nn.PixelShuffle(2)(x.reshape(4, 2, 3))
    nn.ZeroPad1d(1)(x)          nn.ZeroPad2d((1, 2, 0, 1))(x)                           nn.ConstantPad1d((0, 3), 2.5)(x)
    nn.ConstantPad2d(-1, 2.5)(x)                            nn.ReflectionPad1d((2, 1))(x)
    nn.ReflectionPad2d(1)(x)    nn.ReplicationPad1d(3)(x)   nn.ReplicationPad2d((3, 0, 1, 2))(x)
    nn.Dropout1d(0.0)(x)        nn.Dropout2d(0.3).eval()(x[None])                       nn.TripletMarginLoss(margin=2.0)(a, b, b * 2)
    nn.TripletMarginLoss(p=3, swap=True, reduction="none")(a, b, b * 2)                 nn.GaussianNLLLoss(full=True)(a, b, p)
    nn.GaussianNLLLoss(eps=0.5, reduction="none")(a, b, p[:, :1])                       nn.Buffer(a) * 2
    torch.linalg.inv(a[:, :3])  torch.linalg.solve(a[:, :3], v[:3])                     torch.linalg.solve(a[:, :3], b)
    torch.linalg.cholesky(a @ a.T + torch.eye(3, device=a.device))
    torch.linalg.cholesky(a @ a.T + torch.eye(3, device=a.device), upper=True)
    nn.Transformer.generate_square_subsequent_mask(3)
"""

POINTS = """
    nn.Linear(2, 2).half()      nn.LSTM(2, 2).flatten_parameters()                  nn.Linear(2, 2).get_submodule("")
    nn.LinearCrossEntropyLoss   F.linear_cross_entropy
    a.repeat(2, 1)              a.half()                    a.bfloat16()                a.grad_fn
    a.detach_()                 a.exp_()                    a.relu_()                   a.t_()
    a.unsqueeze_(0)             a.random_(0, 3)
    a.index_fill_(0, k, 1.0)    a.fmod(2)                   a.frac()
    a.addmm(a, m)               a.inverse()                 a.median()                  torch.median(a, dim=1)
    i.bincount()                a.cross(a)                  a.stride()                  a.storage()
    a.get_device()              a.pin_memory()              a.share_memory_()           a.unfold(0, 2, 1)
    a.max(1).indices            a.max(1).values
    a.max(dim=1)                a.min(dim=1)                a.sort(dim=1)               a.split(2, dim=1)
    a.std(dim=1)                a.var(dim=0)                torch.max(a, dim=1)         torch.sort(a, dim=1)
    torch.split(a, 2, dim=0)    torch.std(a, dim=0)         torch.half                  torch.float16
    torch.bfloat16              torch.int8                  torch.FloatTensor([1])      torch.LongTensor([1])
    torch.cuda.manual_seed_all(0)                           torch.cuda.max_memory_allocated()
    torch.cuda.Stream()         torch.cuda.set_device(0)    torch.cuda.get_device_name(0)                           torch.cuda.amp
    torch.Size([1])             torch.linalg.svd(a)         torch.fft.fft(a)
    torch.distributions         torch.jit.script            torch.compile
    torch.vmap                  torch.func.grad             torch.autocast              torch.amp
    torch.backends.cudnn        torch.Generator()           torch.get_rng_state()       torch.seed()
    torch.cdist(a, b)           torch.frac(a)
    torch.addmm(a, a, m)        torch.cross(a, b)           torch.bincount(i)           torch.linalg.det(a)
    torch.std_mean(a)           torch.var_mean(a)           torch.conv2d                torch.dropout
    torch.set_default_device    torch.use_deterministic_algorithms(True)                torch.range(0, 3)
    torch.complex64             torch.tril_indices(3, 3)    torch.true_divide(a, b)
    torch.hub.load              torch.broadcast_tensors
    F.upsample(a)               F.relu_(a)                  F.celu(a)                   F.channel_shuffle(x, 2)
    nn.Conv3d(1, 1, 1)          nn.AdaptiveAvgPool1d(1)     nn.BatchNorm3d(3)           nn.ParameterDict()
    nn.CELU()                   nn.DataParallel             nn.LazyLinear(3)
    nn.Bilinear(1, 2, 3)        nn.CircularPad2d(1)         nn.CrossMapLRN2d(3)
    optim.Rprop([a])            optim.ASGD([a])             nn.utils.get_total_norm([a])
    nn.utils.clip_grads_with_norm_([a], 1.0, mg.ones(1))    optim.SGD([a]).register_step_post_hook(print)
    optim.Adamax([a])           optim.SparseAdam([a])       data.ConcatDataset([a])
    data.WeightedRandomSampler  data.RandomSampler          data.IterableDataset        data.BatchSampler
    data.DataLoader([1], sampler=None)                      data.DataLoader([1], generator=None)
    data.DataLoader([1], worker_init_fn=None)               nn.utils.clip_grad_norm
    nn.utils.rnn.pack_padded_sequence(a, [1])               nn.utils.rnn.pad_packed_sequence
    torch.autograd.Variable(a)  torch.autograd.set_detect_anomaly(True)                 torch.autograd.profiler
    a.sum(axis=0, dim=0)        a.sum(0, dim=0)             torch.roll(a, 1, axis=0, dims=0)
"""


def expressions(text):
    return [e.strip() for line in text.strip().split("\n") for e in re.split(r"\s{2,}", line.strip())]


def space(library, device="cpu"):
    """Return the names that the expressions use, with equal values in both libraries."""
    rng = np.random.default_rng(0)

    def floats(*shape):
        x = library.tensor(rng.standard_normal(shape).astype(np.float32), device=device)
        return x.requires_grad_()

    ours = library is mg
    made = {
        "a": floats(3, 4), "b": floats(3, 4), "x": floats(2, 3, 4), "m": floats(4, 3), "v": floats(4), "w": floats(4),
    }  # fmt: skip
    p = rng.uniform(0.1, 0.9, (3, 4)).astype(np.float32)
    made["p"] = library.tensor(p, device=device).requires_grad_()
    made["i"] = library.tensor(rng.integers(0, 4, (3, 4)), device=device)
    made["k"] = library.tensor([2, 0], device=device)
    made["g"] = library.tensor(rng.integers(0, 4, (3, 2)), device=device)
    made["q"] = library.tensor(rng.random((3, 4)) < 0.5, device=device)
    modules = {"nn": nn, "F": nn.functional, "optim": optim, "data": data} if ours else {
        "nn": torch.nn, "F": torch.nn.functional, "optim": torch.optim, "data": torch.utils.data
    }  # fmt: skip

    def fixed(module):
        """Set the parameters to the same numbers in both libraries."""
        module = module.to(device)
        with library.no_grad():
            for q in module.parameters():
                q.copy_(library.cos(library.arange(q.numel(), device=device).reshape(q.shape) * 1.0))
        return module

    def trained(build):
        """Take three steps and return the parameter."""
        q = library.tensor([[1.0, -2.0], [0.5, 3.0]], device=device).requires_grad_()
        optimizer = build([q])
        for _ in range(3):
            optimizer.zero_grad()
            (q**2 * q.detach().cos()).sum().backward()
            optimizer.step()
        return q.detach()

    def rates(build):
        """Return the learning rates of eight steps."""
        optimizer = modules["optim"].SGD([library.zeros(1).requires_grad_()], lr=0.3)
        schedule, found = build(optimizer), []
        for _ in range(8):
            optimizer.step()
            schedule.step()
            found.append(round(optimizer.param_groups[0]["lr"], 9))
        return found

    helpers = {"fixed": fixed, "trained": trained, "rates": rates}
    return {**made, **modules, **helpers, "torch": library, "np": np}
