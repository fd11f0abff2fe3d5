"""Images as arrays: decoded, resized, changed. NumPy in pipelines, JAX in compiled functions."""

from replicax._src.images._arrays_of import convert_image_dtype as convert_image_dtype
from replicax._src.images._coding import adjust_jpeg_quality as adjust_jpeg_quality
from replicax._src.images._coding import decode_bmp as decode_bmp
from replicax._src.images._coding import decode_gif as decode_gif
from replicax._src.images._coding import decode_image as decode_image
from replicax._src.images._coding import decode_jpeg as decode_jpeg
from replicax._src.images._coding import decode_png as decode_png
from replicax._src.images._coding import encode_jpeg as encode_jpeg
from replicax._src.images._coding import encode_png as encode_png
from replicax._src.images._coding import is_jpeg as is_jpeg
from replicax._src.images._colours import adjust_brightness as adjust_brightness
from replicax._src.images._colours import adjust_contrast as adjust_contrast
from replicax._src.images._colours import adjust_gamma as adjust_gamma
from replicax._src.images._colours import adjust_hue as adjust_hue
from replicax._src.images._colours import adjust_saturation as adjust_saturation
from replicax._src.images._colours import grayscale_to_rgb as grayscale_to_rgb
from replicax._src.images._colours import hsv_to_rgb as hsv_to_rgb
from replicax._src.images._colours import per_image_standardization as per_image_standardization
from replicax._src.images._colours import rgb_to_grayscale as rgb_to_grayscale
from replicax._src.images._colours import rgb_to_hsv as rgb_to_hsv
from replicax._src.images._geometry import central_crop as central_crop
from replicax._src.images._geometry import crop_to_bounding_box as crop_to_bounding_box
from replicax._src.images._geometry import flip_left_right as flip_left_right
from replicax._src.images._geometry import flip_up_down as flip_up_down
from replicax._src.images._geometry import pad_to_bounding_box as pad_to_bounding_box
from replicax._src.images._geometry import resize_with_crop_or_pad as resize_with_crop_or_pad
from replicax._src.images._geometry import rot90 as rot90
from replicax._src.images._geometry import transpose as transpose
from replicax._src.images._random import random_brightness as random_brightness
from replicax._src.images._random import random_contrast as random_contrast
from replicax._src.images._random import random_crop as random_crop
from replicax._src.images._random import random_flip_left_right as random_flip_left_right
from replicax._src.images._random import random_flip_up_down as random_flip_up_down
from replicax._src.images._random import random_hue as random_hue
from replicax._src.images._random import random_jpeg_quality as random_jpeg_quality
from replicax._src.images._random import random_saturation as random_saturation
from replicax._src.images._random import stateless_random_brightness as stateless_random_brightness
from replicax._src.images._random import stateless_random_contrast as stateless_random_contrast
from replicax._src.images._random import stateless_random_crop as stateless_random_crop
from replicax._src.images._random import (
    stateless_random_flip_left_right as stateless_random_flip_left_right,
)
from replicax._src.images._random import (
    stateless_random_flip_up_down as stateless_random_flip_up_down,
)
from replicax._src.images._random import stateless_random_hue as stateless_random_hue
from replicax._src.images._random import (
    stateless_random_jpeg_quality as stateless_random_jpeg_quality,
)
from replicax._src.images._random import stateless_random_saturation as stateless_random_saturation
from replicax._src.images._resizing import ResizeMethod as ResizeMethod
from replicax._src.images._resizing import resize as resize
from replicax._src.images._resizing import resize_with_pad as resize_with_pad
