//! VGG16 (Simonyan and Zisserman, *Very Deep Convolutional Networks for Large-Scale Image
//! Recognition*, configuration D), with the classifier of 512, 512 and 10 that is usual for images
//! of 32 by 32 pixels in place of 4096, 4096 and 1000.

use super::network::Network;

/// Filters of the convolutions; 0 is a pooling.
const LAYERS: [u32; 18] =
    [64, 64, 0, 128, 128, 0, 256, 256, 256, 0, 512, 512, 512, 0, 512, 512, 512, 0];
/// Outputs of the fully connected layers before the last.
const HIDDEN: [u32; 2] = [512, 512];
/// Classes.
const CLASSES: u32 = 10;

/// The network on images of `side` rows and columns, a multiple of 32, with all numbers of filters
/// divided by `divisor`.
pub(crate) fn network(side: u32, divisor: u32) -> Network {
    let mut network = Network::new(side);
    let mut last = 0;
    for filters in LAYERS {
        last = match filters {
            0 => network.max_pool(last, 2),
            _ => network.convolution(last, filters / divisor, 3, 1),
        };
    }
    if side > 32 {
        last = network.average_pool(last);
    }
    for outputs in HIDDEN {
        last = network.convolution(last, outputs / divisor, 1, 1);
    }
    network.convolution(last, CLASSES, 1, 1);
    network
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_has_16_layers_with_the_published_number_of_weights() {
        let network = network(32, 1);
        let sizes = network.layers.iter().filter_map(|layer| network.sizes(layer, 1));
        let weights: Vec<u32> = sizes.map(|sizes| sizes.rows() * sizes.filters).collect();
        assert_eq!(weights.len(), 16);
        // 14.71 million in the convolutions, biases aside.
        assert_eq!(weights[..13].iter().sum::<u32>(), 14_710_464);
        assert_eq!(network.tensors.last().unwrap().elements(1), 10);
    }
}
