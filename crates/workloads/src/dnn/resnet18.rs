//! ResNet18 (He et al., *Deep Residual Learning for Image Recognition*), with the stem for images of
//! 32 by 32 pixels: a convolution of 3 by 3 without pooling. Normalization is folded into the shift
//! after a convolution.

use super::network::Network;

/// Filters of the four groups of two blocks.
const GROUPS: [u32; 4] = [64, 128, 256, 512];
/// Classes.
const CLASSES: u32 = 10;

/// The network on images of `side` rows and columns, a multiple of 8, with all numbers of filters
/// divided by `divisor`.
pub(crate) fn network(side: u32, divisor: u32) -> Network {
    let mut network = Network::new(side);
    let mut last = network.convolution(0, GROUPS[0] / divisor, 3, 1);
    for (group, filters) in GROUPS.into_iter().enumerate() {
        for block in 0..2 {
            let stride = if group > 0 && block == 0 { 2 } else { 1 };
            last = residual(&mut network, last, filters / divisor, stride);
        }
    }
    last = network.average_pool(last);
    network.convolution(last, CLASSES, 1, 1);
    network
}

/// Two convolutions, and the input added to their result; through a convolution of 1 by 1 if the
/// shapes differ.
fn residual(network: &mut Network, input: usize, filters: u32, stride: u32) -> usize {
    let first = network.convolution(input, filters, 3, stride);
    let second = network.convolution(first, filters, 3, 1);
    let shortcut = match stride {
        1 => input,
        _ => network.convolution(input, filters, 1, stride),
    };
    network.add(second, shortcut)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_has_the_published_number_of_weights() {
        let network = network(32, 1);
        let sizes = network.layers.iter().filter_map(|layer| network.sizes(layer, 1));
        let weights: Vec<u32> = sizes.map(|sizes| sizes.rows() * sizes.filters).collect();
        // 17 convolutions and the classifier, and 3 projections.
        assert_eq!(weights.len(), 21);
        // 11.16 million, biases and normalization aside.
        assert_eq!(weights.iter().sum::<u32>(), 11_164_352);
        assert_eq!(network.tensors.last().unwrap().elements(1), 10);
    }
}
