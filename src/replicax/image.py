"""`rx.image`: images in pipelines and in compiled functions, under the names of `tf.image`."""

from replicax._src._public import name_publicly as _name_publicly
from replicax._src.images import ResizeMethod as ResizeMethod
from replicax._src.images import adjust_brightness as adjust_brightness
from replicax._src.images import adjust_contrast as adjust_contrast
from replicax._src.images import adjust_gamma as adjust_gamma
from replicax._src.images import adjust_hue as adjust_hue
from replicax._src.images import adjust_jpeg_quality as adjust_jpeg_quality
from replicax._src.images import adjust_saturation as adjust_saturation
from replicax._src.images import central_crop as central_crop
from replicax._src.images import convert_image_dtype as convert_image_dtype
from replicax._src.images import crop_to_bounding_box as crop_to_bounding_box
from replicax._src.images import decode_bmp as decode_bmp
from replicax._src.images import decode_gif as decode_gif
from replicax._src.images import decode_image as decode_image
from replicax._src.images import decode_jpeg as decode_jpeg
from replicax._src.images import decode_png as decode_png
from replicax._src.images import encode_jpeg as encode_jpeg
from replicax._src.images import encode_png as encode_png
from replicax._src.images import flip_left_right as flip_left_right
from replicax._src.images import flip_up_down as flip_up_down
from replicax._src.images import grayscale_to_rgb as grayscale_to_rgb
from replicax._src.images import hsv_to_rgb as hsv_to_rgb
from replicax._src.images import is_jpeg as is_jpeg
from replicax._src.images import pad_to_bounding_box as pad_to_bounding_box
from replicax._src.images import per_image_standardization as per_image_standardization
from replicax._src.images import random_brightness as random_brightness
from replicax._src.images import random_contrast as random_contrast
from replicax._src.images import random_crop as random_crop
from replicax._src.images import random_flip_left_right as random_flip_left_right
from replicax._src.images import random_flip_up_down as random_flip_up_down
from replicax._src.images import random_hue as random_hue
from replicax._src.images import random_jpeg_quality as random_jpeg_quality
from replicax._src.images import random_saturation as random_saturation
from replicax._src.images import resize as resize
from replicax._src.images import resize_with_crop_or_pad as resize_with_crop_or_pad
from replicax._src.images import resize_with_pad as resize_with_pad
from replicax._src.images import rgb_to_grayscale as rgb_to_grayscale
from replicax._src.images import rgb_to_hsv as rgb_to_hsv
from replicax._src.images import rot90 as rot90
from replicax._src.images import stateless_random_brightness as stateless_random_brightness
from replicax._src.images import stateless_random_contrast as stateless_random_contrast
from replicax._src.images import stateless_random_crop as stateless_random_crop
from replicax._src.images import (
    stateless_random_flip_left_right as stateless_random_flip_left_right,
)
from replicax._src.images import stateless_random_flip_up_down as stateless_random_flip_up_down
from replicax._src.images import stateless_random_hue as stateless_random_hue
from replicax._src.images import stateless_random_jpeg_quality as stateless_random_jpeg_quality
from replicax._src.images import stateless_random_saturation as stateless_random_saturation
from replicax._src.images import transpose as transpose

_name_publicly(__name__)
